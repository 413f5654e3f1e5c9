"""Brokers that read the metadata late: what one of them says is not news."""

from __future__ import annotations

from streaming.contracts.events import Cause
from tests.sources.polling.small_cluster import of_three, part, without


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
