"""Brokers that read the metadata late: what one of them says is not news."""

from __future__ import annotations

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import Micros
from streaming.sources.polling.inference.seen_partitions import Answered, SeenPartitions
from tests.sources.polling.small_cluster import TOPIC, SmallCluster, of_three, part, without


def test_a_broker_that_has_not_read_of_an_expansion_yet_shrinks_no_isr() -> None:
    """One that was started again answers before it has read all: in its eyes it is not in sync yet."""
    cluster, full = of_three((1,)), part((1, 2, 3), (1, 2, 3), 1)
    cluster.becomes(20.1, 0, without(full, 3))
    cluster.becomes(30.1, 0, full)
    cluster.at(30.2, lambda: cluster.sees.update({3: {0: without(full, 3)}}))
    cluster.at(34.4, cluster.sees.clear)
    cluster.play(60)
    assert [step.isr for step in cluster.steps()] == [(1, 2), (1, 2, 3)]
    assert cluster.steps()[-1].cause is Cause.EXPAND


def test_an_isr_that_shrinks_again_does_so_as_soon_as_another_broker_shows_it() -> None:
    cluster, full = of_three((1,)), part((1, 2, 3), (1, 2, 3), 1)
    cluster.becomes(20.1, 0, without(full, 3))
    cluster.becomes(30.1, 0, full)
    cluster.becomes(33.6, 0, without(full, 3))
    cluster.play(60)
    assert [step.isr for step in cluster.steps()] == [(1, 2), (1, 2, 3), (1, 2)]
    seen = [second for second, each in cluster.seen if each in cluster.steps()]
    assert seen[-1] - 33.6 < 5


def test_metadata_that_arrive_late_are_no_other_log() -> None:
    """They were asked for before an election that single partitions have shown by the time they arrive."""
    before, elected = part((1, 2, 3), (1, 2, 3), 1), part((1, 2, 3), (2, 3), 2, epoch=1)
    seen = SeenPartitions()
    whole = SmallCluster({0: before}).view_of(1)
    seen.read_all(whole, Answered(Micros(0), Micros(10), 1), None)
    assert seen.read_some({TOPIC: {0: elected}}, Answered(Micros(30), Micros(40), 2)) is not None
    late = seen.read_all(whole, Answered(Micros(20), Micros(50), 1), None)
    assert not late.is_new_log
    assert not late.steps
    assert late.after.topics[TOPIC][0] == elected
