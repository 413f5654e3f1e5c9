"""Observations made by hand: a tiny cluster, seen through its metadata log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from streaming.changes.fold import fold
from streaming.changes.incidents.context import ChangeRow
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.blocks import PartitionsObserved, block_of
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import (
    BrokerObserved,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Heartbeat,
    MaintenanceObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.contracts.state import PartitionState
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import rows_of

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


class Story:
    """Writes observations of one source, in order; every call is one second later and one offset further."""

    def __init__(self, source: str = "metadata_log:a", source_kind: SourceKind = SourceKind.METADATA_LOG) -> None:
        self.source, self.source_kind = source, source_kind
        self.offset, self.sequence, self.now = 10, 0, START
        self.seen: list[Observation] = []

    def envelope(self) -> dict[str, Any]:
        self.sequence += 1
        return {
            "cluster_id": "cluster-1", "cluster": "orders-eu", "source": self.source, "source_kind": self.source_kind,
            "sequence": self.sequence, "occurred_not_before": self.now, "occurred_not_after": self.now,
            "collected_at": self.now + 50_000,
        }  # fmt: skip

    def later(self, seconds: float = 1) -> Story:
        self.now += int(seconds * SECOND)
        self.offset += 1
        return self

    def add(self, observation: Observation) -> Observation:
        self.seen.append(observation)
        return observation

    def tell(self, kind: type[Observation], **fields: Any) -> Observation:
        """Add an observation at the place of the log, which a poll does not know."""
        offset = self.offset if self.source_kind is SourceKind.METADATA_LOG else None
        return self.add(kind(**self.envelope(), **{"metadata_offset": offset, **fields}))

    def partition(self, number: int = 0, **fields: Any) -> PartitionObserved:
        told: dict[str, Any] = {
            "topic_id": "topic-1", "topic": "orders", "partition": number, "replicas": (1, 2, 3), "isr": (1, 2, 3),
            "leader": 1, "leader_epoch": 0, "partition_epoch": 0,
        }  # fmt: skip
        return cast("PartitionObserved", self.tell(PartitionObserved, **{**told, **fields}))

    def snapshot(
        self,
        partitions: Iterable[dict[str, Any]] = ({},),
        brokers: tuple[int, ...] = (1, 2, 3),
        reason: SnapshotReason = SnapshotReason.START,
    ) -> None:
        self.tell(SnapshotBegin, snapshot_id="s", reason=reason)
        for broker in brokers:
            self.broker(broker, in_snapshot=True, log_dirs=("d1",))
        if listed := list(partitions):
            self.block(listed)
        counted = {"topic_ids": ("topic-1",), "partition_counts": (len(listed),)} if listed else {"topic_ids": ()}
        self.tell(SnapshotEnd, snapshot_id="s", **{"partition_counts": (), **counted}, brokers=brokers)

    def block(self, partitions: Iterable[dict[str, Any]]) -> PartitionsObserved:
        """Report partitions in a block, as the sources do; those with a cause also singly, before it."""
        unnumbered = Story(self.source, self.source_kind)
        unnumbered.offset, unnumbered.now = self.offset, self.now
        seen = [unnumbered.partition(number, in_snapshot=True, **fields) for number, fields in enumerate(partitions)]
        for observed in seen:
            if observed.cause is not None:
                self.add(replace(observed, sequence=self.envelope()["sequence"]))
        block = replace(block_of(seen), sequence=self.envelope()["sequence"])
        self.add(block)
        return block

    def config(
        self,
        value: str | None,
        origin: ConfigOrigin = ConfigOrigin.LOG,
        topic: str = "orders",
        key: str = "min.insync.replicas",
    ) -> None:
        offset = self.offset if origin is ConfigOrigin.LOG else None
        self.tell(ConfigObserved, metadata_offset=offset, topic=topic, key=key, value=value, origin=origin)

    def broker(self, broker: int, **fields: Any) -> None:
        told = {"broker_epoch": 5, "fenced": False, "in_controlled_shutdown": False, **fields}
        self.tell(BrokerObserved, broker=broker, **told)

    def removed(self) -> None:
        self.tell(TopicRemoved, topic_id="topic-1", topic="orders")

    def controller(self, controller: int, epoch: int) -> None:
        self.tell(ControllerObserved, controller=controller, controller_epoch=epoch)

    def heartbeat(self) -> None:
        self.tell(Heartbeat)

    def beside(self, source: str) -> dict[str, Any]:
        """The envelope of a source that orders nothing, at the time of the story."""
        envelope = self.envelope()
        self.sequence -= 1
        return {**envelope, "source": source, "source_kind": SourceKind.NONE, "sequence": 0}

    def lease(self, broker: int, seconds: float = 3_600, **fields: Any) -> MaintenanceObserved:
        """Announce planned work from now on, as a source of its own; whoever calls adds it."""
        told = {**self.beside("maintenance:a"), "lease": "l", "why": "new disk", **fields}
        return MaintenanceObserved(
            **told, broker=BrokerId(broker), lease_until=Micros(self.now + int(seconds * SECOND))
        )


def folded(told: Iterable[Observation], state: ReplicationState | None = None) -> tuple[ReplicationState, list[Change]]:
    """Fold observations into a state, a new one unless one is given; the state, and what changed."""
    state = ReplicationState() if state is None else state
    found = fold(state, told)
    state.apply(found.touched)
    return state, list(found.changes)


def state_after(told: Iterable[Observation]) -> ReplicationState:
    return folded(told)[0]


def rows_from(told: Iterable[Observation]) -> tuple[ChangeRow, ...]:
    """The rows of the change log after observations."""
    return tuple(rows_of(changes_to_arrow(folded(told)[1]), 1))


def only(state: ReplicationState) -> PartitionState:
    """The one partition that is there."""
    (partition,) = (each for each in state.partitions() if not each.is_deleted)
    return partition


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def poll() -> Story:
    return Story("admin:a", SourceKind.POLL)


PROVEN: dict[str, Any] = {"evidence": Evidence.PROVEN}
LAG: dict[str, Any] = {"cause": Cause.LAG, **PROVEN}
EXPAND: dict[str, Any] = {"cause": Cause.EXPAND, **PROVEN}
FENCED: dict[str, Any] = {"cause": Cause.FENCED, **PROVEN}
STOPPED: dict[str, Any] = {"cause": Cause.CONTROLLED_SHUTDOWN, **PROVEN}
