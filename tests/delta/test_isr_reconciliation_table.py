"""Meters of simulated brokers against what was recorded: of the log nothing is missed, of a slow poll much is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streaming.changes.advice.reconciliation import METRIC_OF, Meter
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Channel, Heartbeat, Observation, SnapshotReason, SourceKind
from streaming.contracts.sample_blocks import BrokerMetricsObserved
from streaming.contracts.samples import BrokerMetricObserved
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.sources.polling.view import ClusterView, PartitionView, snapshot, steps
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.jobs.shards.test_batch import published, rows

EPOCH = 1_700_000_000_000_000
SECOND = 1_000_000
SECONDS = 90
OF_LEADERS = {Cause.LAG: Meter.ISR_SHRINKS, Cause.LEADER_STALL: Meter.ISR_SHRINKS, Cause.EXPAND: Meter.ISR_EXPANDS}


def source() -> SimulatedSource:
    return SimulatedSource(
        load_scenario("flapping_follower"), seed=7, cluster_id=ClusterId("c1"), cluster="demo", name="simulated:demo",
        epoch=Micros(EPOCH),
    )  # fmt: skip


def view(it: SimulatedSource) -> ClusterView:
    names = {topic_id: topic.topic for topic_id, topic in it.topics().items()}
    topics: dict[str, dict[int, PartitionView]] = {}
    for key, partition in it.partitions().items():
        seen = PartitionView(partition.replicas, partition.isr, partition.leader)
        topics.setdefault(names[key.topic_id], {})[key.partition] = seen
    return ClusterView(
        cluster_id=ClusterId("c1"), answered_by=1, topics=topics,
        brokers={BrokerId(number): ("localhost", 9090 + number) for number in (1, 2, 3)},
        topic_ids={name: topic_id for topic_id, name in names.items()},
    )  # fmt: skip


class Poller:
    """Looks at a simulated cluster as an admin client does, and sees no epochs."""

    def __init__(self) -> None:
        self._before: tuple[int, ClusterView] | None = None
        self._sequence = 0

    def poll(self, it: SimulatedSource, now: int) -> list[Observation]:
        after, before = view(it), self._before
        envelope: dict[str, Any] = {
            "cluster_id": "c1", "cluster": "demo", "source": "admin:a", "source_kind": SourceKind.POLL,
            "occurred_not_before": now if before is None else before[0], "occurred_not_after": now,
            "collected_at": now,
        }  # fmt: skip
        self._before = (now, after)
        if before is None:
            return snapshot(None, after, envelope, snapshot_id="first", reason=SnapshotReason.START)
        return steps(before[1], after, envelope) or [Heartbeat(**envelope)]


class Life:
    """The two queries side by side on one simulation."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = source()
        self._replication = ReplicationBatch(directory)
        self._metrics = SampleBatch(directory)
        self._positions: Counter[Channel] = Counter()

    def restart(self) -> None:
        self._replication = ReplicationBatch(self.directory)
        self._metrics = SampleBatch(self.directory)

    def replicate(self, observations: Iterable[Observation]) -> None:
        told = list(observations)
        self._replication.apply(published(told, start=self._positions[Channel.REPLICATION]))
        self._positions[Channel.REPLICATION] += len(told)

    def measure(self, observations: Iterable[Observation]) -> None:
        told = list(observations)
        start = self._positions[Channel.SAMPLES]
        self._metrics.apply(published(told, start=start))
        self._metrics.apply(published(told, start=start))
        self._positions[Channel.SAMPLES] += len(told)

    def reconciled(self) -> dict[tuple[int, str], dict[str, Any]]:
        found = rows(self.directory, "isr_reconciliation")
        return {(row["broker"], row["meter"]): row for row in found}

    def truth(self, told: dict[str, Any], broker: int, meter: str) -> int:
        since, until = (round(told[name].timestamp() * SECOND) for name in ("since", "until"))
        return sum(
            OF_LEADERS.get(entry.cause) == meter and entry.leader == broker and since < entry.time <= until
            for entry in self.source.trace()
        )


@pytest.mark.parametrize("restarts", [False, True])
def test_of_the_metadata_log_nothing_is_missed(tmp_path: Path, restarts: bool) -> None:  # noqa: FBT001 - pytest's
    life = Life(tmp_path)
    for second in range(1, SECONDS + 1):
        seen = life.source.poll(Micros(EPOCH + second * SECOND))
        life.replicate(each for each in seen if each.channel is Channel.REPLICATION)
        life.measure(each for each in seen if isinstance(each, BrokerMetricsObserved))
        if restarts and second in {50, 70}:
            life.restart()
    found = life.reconciled()
    assert {(broker, meter) for broker in (1, 2, 3) for meter in Meter} == set(found)
    assert [row["missed"] for row in found.values()] == [0] * 6
    for (broker, meter), row in found.items():
        assert row["counted"] == row["recorded"] == life.truth(row, broker, meter)
    assert sum(row["counted"] for row in found.values()) > 0


def test_what_a_slow_poll_does_not_see_the_brokers_count(tmp_path: Path) -> None:
    life, poller = Life(tmp_path), Poller()
    for second in range(1, SECONDS + 1):
        seen = life.source.poll(Micros(EPOCH + second * SECOND))
        if second % 30 == 1:
            life.replicate(poller.poll(life.source, EPOCH + second * SECOND))
        life.measure(each for each in seen if isinstance(each, BrokerMetricsObserved))
    found = life.reconciled()
    for (broker, meter), row in found.items():
        assert row["counted"] == life.truth(row, broker, meter)
        assert row["missed"] == max(0, row["counted"] - row["recorded"])
    assert sum(row["missed"] for row in found.values()) > 0


def test_a_meter_that_begins_anew_is_no_change_undone(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for second, value in enumerate((40, 43, 2), start=1):
        moment = EPOCH + second * SECOND
        life.replicate([each for each in life.source.poll(Micros(moment)) if each.channel is Channel.REPLICATION])
        sampled = BrokerMetricObserved(
            cluster_id=ClusterId("c1"), cluster="demo", source="metrics:a", source_kind=SourceKind.NONE,
            occurred_not_before=Micros(moment), occurred_not_after=Micros(moment), collected_at=Micros(moment),
            broker=BrokerId(1), metric=METRIC_OF[Meter.ISR_SHRINKS], metric_value=float(value),
        )  # fmt: skip
        life.measure([sampled])
    life.replicate([each for each in life.source.poll(Micros(EPOCH + 8 * SECOND)) if each.kind == "heartbeat"])
    life.measure([])
    (told,) = life.reconciled().values()

    assert (told["counted"], told["resets"], told["meter_value"]) == (3 + 2, 1, 2)
