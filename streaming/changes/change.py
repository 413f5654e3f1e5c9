"""One accepted step, with its events, and what a fold gives. A row of ``partition_changes`` projects one change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streaming.changes.state import ReplicationState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.changes.listed import ListedPartitions
    from streaming.contracts.events import Cause, EventKind, Evidence, Subject
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, PartitionState, SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in a change. ``event_id`` is the same whenever the same change is derived."""

    event_id: str
    event: EventKind
    event_broker: BrokerId | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One accepted step, or those of all partitions that one block of the first full report lists.

    ``observation`` gives identity, time and source. Exactly one of ``after``, ``listed``, ``broker_after``,
    ``cluster_after``, ``source_after`` is set, according to the subject. ``configs`` holds the configured values that
    a cluster's change brought.
    """

    subject: Subject
    observation: Observation
    is_baseline: bool = False
    cause: Cause | None = None
    evidence: Evidence | None = None
    candidates: tuple[Cause, ...] = ()
    missed: int = 0
    left_isr: tuple[BrokerId, ...] = ()
    joined_isr: tuple[BrokerId, ...] = ()
    events: tuple[Event, ...] = ()
    before: PartitionState | None = None
    after: PartitionState | None = None
    listed: ListedPartitions | None = None
    broker_after: BrokerState | None = None
    cluster_after: ClusterState | None = None
    configs: tuple[tuple[ConfigKey, ConfigValue], ...] = ()
    source_after: SourceState | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster, as the state afterwards has it."""
        after = self.after or self.broker_after or self.cluster_after or self.source_after
        return self.observation.cluster if after is None else after.cluster

    @property
    def count(self) -> int:
        """How many steps, and rows of ``partition_changes``, it is."""
        return 1 if self.listed is None else len(self.listed)

    def singly(self) -> Iterator[Change]:
        """Yield each of its steps as a change of its own."""
        if self.listed is None:
            yield self
            return
        for after in self.listed.values():
            yield replace(self, listed=None, after=after)


@dataclass(frozen=True, slots=True)
class Folded:
    """The changes in the order they were accepted, and the state they touched (``ReplicationState.apply`` it).

    ``dropped`` are the observations that were equal, older, or not of the primary source.
    """

    changes: tuple[Change, ...]
    touched: ReplicationState
    dropped: tuple[Observation, ...] = ()
