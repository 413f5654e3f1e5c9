"""One accepted step, with its events. A row of ``partition_changes`` is the projection of one of these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.changes.state import BrokerState, ClusterState, ConfigKey, MinIsr, PartitionState, SourceState
    from streaming.contracts.events import Cause, EventKind, Evidence
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import Observation


class Subject(StrEnum):
    """What a change is about."""

    PARTITION = "partition"
    BROKER = "broker"
    CLUSTER = "cluster"
    SOURCE = "source"


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
    change brought.
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
    broker_after: BrokerState | None = None
    cluster_after: ClusterState | None = None
    min_isr: tuple[tuple[ConfigKey, MinIsr], ...] = ()
    source_after: SourceState | None = None
