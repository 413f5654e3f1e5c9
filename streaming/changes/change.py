"""One accepted step, with its events, and what a fold gives. A row of ``partition_changes`` projects one change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming.changes.state import ReplicationState

if TYPE_CHECKING:
    from streaming.contracts.events import Cause, EventKind, Evidence, Subject
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, MinIsr, PartitionState, SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in a change. ``event_id`` is the same whenever the same change is derived."""

    event_id: str
    event: EventKind
    event_broker: BrokerId | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One accepted step.

    ``observation`` gives identity, time and source. Exactly one of ``after``, ``broker_after``, ``cluster_after``,
    ``source_after`` is set, according to the subject. ``min_isr`` holds the configured minima that a cluster's
    change brought. ``like`` is a state that ``after`` equals but for its topic and ``IDENTITY_IN_BLOCK``: of the
    million partitions of a first report few differ in anything else.
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
    like: PartitionState | None = field(default=None, compare=False, repr=False)
    broker_after: BrokerState | None = None
    cluster_after: ClusterState | None = None
    min_isr: tuple[tuple[ConfigKey, MinIsr], ...] = ()
    source_after: SourceState | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """The changes in the order they were accepted, and the state they touched (``ReplicationState.apply`` it).

    ``dropped`` are the observations that were equal, older, or not of the primary source.
    """

    changes: tuple[Change, ...]
    touched: ReplicationState
    dropped: tuple[Observation, ...] = ()
