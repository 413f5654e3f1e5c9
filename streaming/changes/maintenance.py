"""Planned work on a broker: the leases announced for it, and what each record and the time make of them. Pure.

A lease holds from the record that announced it up to its end, both by the clock of that record, and lapses when the
watermark of the primary source passes its end: never by a clock here, so a job that was stopped meanwhile comes to the
same result. A lease does not reach back: what happened before its record is not planned.

Invariant: of one lease the newest record counts, whatever the order in which the records of several sources are
applied, and a lease that was ended never holds again. One that lapsed does if it is renewed, from then on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.partitions import with_event_ids
from streaming.changes.state import Change
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import IN_ITS_TAIL, Heartbeat, SourceKind
from streaming.contracts.words import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.steps import Draft
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import MaintenanceObserved, Observation
    from streaming.contracts.state import BrokerState

# A lease that is over is remembered for a day, so that a record of it that arrives late does not begin it again.
_REMEMBERED: Final = 86_400_000_000


MaintenanceEvent = tuple[EventKind, "BrokerId | None", "str | None"]
"""An event before it has an id: kind, broker, detail."""


class Lease(NamedTuple):
    """One lease of one broker. Times are UTC microseconds.

    Attributes:
        lease: its id.
        since: when it began to hold.
        at: time of its newest record.
        until: when it lapses, by that record.
        why: the reason that was given.
        ended_at: when it was ended; then it never holds again.
        is_open: neither ended nor lapsed.
    """

    lease: str
    since: Micros
    at: Micros
    until: Micros
    why: str
    ended_at: Micros | None = None
    is_open: bool = True

    @property
    def end(self) -> Micros:
        """Time at which it lapses or was ended, whichever is first."""
        return self.until if self.ended_at is None else min(self.until, self.ended_at)

    @property
    def has_ended_command(self) -> bool:
        """True if it is only in the tail of a command, which ended at the time of its newest record."""
        return self.why.endswith(IN_ITS_TAIL)

    @property
    def reason(self) -> str:
        """The reason that was given, without the note that the command has ended."""
        return self.why.removesuffix(IN_ITS_TAIL)

    def holds(self, moment: int) -> bool:
        """Return whether it held at a moment."""
        return self.since <= moment <= self.end


def leases_of(broker: BrokerState) -> tuple[Lease, ...]:
    """Return every lease of a broker, also those that are over but still remembered, oldest first."""
    return decode_leases(broker.maintenance_leases)


def decode_leases(stored: str | None) -> tuple[Lease, ...]:
    """Read the leases of a broker from its state."""
    return () if stored is None else tuple(Lease(*each) for each in json.loads(stored))


def announce(
    before: BrokerState, observed: MaintenanceObserved, watermark: Micros | None
) -> tuple[BrokerState, list[MaintenanceEvent]] | None:
    """Apply one record; return the broker after it, and the events.

    None where the record is older than the lease, or of one that was ended. Leases that were over long before the
    watermark of the primary source are forgotten.
    """
    leases = {lease.lease: lease for lease in leases_of(before)}
    current = leases.get(observed.lease)
    step = _first(observed) if current is None else _next(current, observed)
    if step is None:
        return None
    lease, kind = step
    leases[lease.lease] = lease
    after = _with_leases(before, leases, watermark)
    if lease.is_open:
        after = after._replace(maintenance_overran_at=None)
    text = f"{lease.why}; until {utc_text(lease.until)}" + f" ({observed.announced_by})" * bool(observed.announced_by)
    return after, [] if kind is None else [(kind, before.broker, text)]


def lapse(before: BrokerState, watermark: Micros) -> tuple[BrokerState, Micros, list[MaintenanceEvent]] | None:
    """Close the leases that the watermark has passed.

    Work overran if the broker is down and no other lease held on: it is not planned any more, until a later lease.
    Records of other leases may have been applied before the watermark came so far.

    Returns:
        the broker after it, when the last of them lapsed and the events; None if none lapsed.
    """
    leases = {lease.lease: lease for lease in leases_of(before)}
    over = [lease for lease in leases.values() if lease.is_open and lease.until < watermark]
    if not over:
        return None
    overran = [lease for lease in over if is_down(before) and not _is_followed(lease, leases.values())]
    at = max((lease.until for lease in overran), default=None)
    closed = {lease.lease: lease._replace(is_open=False) for lease in over}
    after = _with_leases(before, leases | closed, watermark)
    if at is not None and not any(at < lease.since < lease.end for lease in leases.values()):
        after = after._replace(maintenance_overran_at=at)
    kinds = (EventKind.MAINTENANCE_OVERRAN if lease in overran else EventKind.MAINTENANCE_LAPSED for lease in over)
    texts = (f"{lease.why}; until {utc_text(lease.until)}" for lease in over)
    last = max(lease.until for lease in over)
    return after, last, [(kind, before.broker, text) for kind, text in zip(kinds, texts, strict=True)]


def _is_followed(lease: Lease, leases: Iterable[Lease]) -> bool:
    """Return whether another lease held when one lapsed, and for longer; it may be over by now."""
    return any(other.since <= lease.until < other.end for other in leases)


def is_down(broker: BrokerState) -> bool:
    """Return whether a broker is out of service, or about to be, as far as its source can see."""
    return not broker.is_registered or bool(broker.is_fenced) or bool(broker.is_shutting_down)


def with_return(broker: BrokerState) -> BrokerState:
    """Clear the overrun of a broker that is back."""
    if broker.maintenance_overran_at is None or is_down(broker):
        return broker
    return broker._replace(maintenance_overran_at=None)


def is_planned(broker: BrokerState | None, moment: Micros) -> bool:
    """Return whether a lease of this broker held at a moment."""
    return broker is not None and any(lease.holds(moment) for lease in leases_of(broker))


def next_lapse(brokers: Iterable[BrokerState]) -> Micros | None:
    """Return when the first open lease of these brokers lapses; None for none."""
    ends = [
        lease.until
        for broker in brokers
        if broker.maintenance_until is not None
        for lease in leases_of(broker)
        if lease.is_open
    ]
    return min(ends, default=None)


def _first(observed: MaintenanceObserved) -> tuple[Lease, EventKind | None]:
    at = observed.occurred_not_after
    lease = Lease(observed.lease, at, at, observed.lease_until, observed.why)
    if observed.is_end:  # the record that it ends has not arrived yet, from another source
        return lease._replace(at=Micros(0), ended_at=at, is_open=False), None
    return lease, EventKind.MAINTENANCE_BEGAN


def _next(current: Lease, observed: MaintenanceObserved) -> tuple[Lease, EventKind | None] | None:
    at = observed.occurred_not_after
    if observed.is_end:
        if current.ended_at is not None and current.ended_at <= at:
            return None
        kind = EventKind.MAINTENANCE_ENDED if current.is_open else None
        return current._replace(ended_at=at, is_open=False), kind
    if (at, observed.lease_until) <= (current.at, current.until):
        return None
    newest = current._replace(at=at, until=observed.lease_until, why=observed.why)
    if current.ended_at is not None:
        return newest._replace(since=min(current.since, at)), None
    if not current.is_open:
        return newest._replace(since=at, is_open=True), EventKind.MAINTENANCE_BEGAN
    return newest, None if observed.is_renewal else EventKind.MAINTENANCE_EXTENDED


def _with_leases(broker: BrokerState, leases: Mapping[str, Lease], watermark: Micros | None) -> BrokerState:
    oldest = 0 if watermark is None else watermark - _REMEMBERED
    kept = sorted(
        (lease for lease in leases.values() if lease.is_open or max(lease.end, lease.at) >= oldest),
        key=lambda lease: (lease.since, lease.lease),
    )
    held = [lease for lease in kept if lease.is_open]
    return broker._replace(
        maintenance_since=min((lease.since for lease in held), default=None),
        maintenance_until=max((lease.until for lease in held), default=None),
        maintenance_why="; ".join(dict.fromkeys(lease.why for lease in held)) if held else None,
        maintenance_leases=json.dumps(kept, separators=(",", ":"), ensure_ascii=False) if kept else None,
    )


# The steps of planned work, written into a draft.


# No report says that a lease lapses: the source of that change.
LAPSE_SOURCE: Final = "maintenance:lapse"


def announced(observed: MaintenanceObserved, draft: Draft) -> None:
    """Apply a record of planned work; of a broker that no source has reported it is dropped."""
    before = draft.broker(observed.cluster_id, observed.broker)
    step = None if before is None else announce(before, observed, draft.cluster(observed).primary_watermark)
    if step is None:
        draft.drop(observed)
        return
    after, events = step
    _stepped(after, observed, draft, f"{observed.lease}/{observed.occurred_not_after}", events)


def lapse_leases(observed: Observation, draft: Draft) -> None:
    """Close the leases of a cluster that the watermark of its primary source has passed.

    The change is dated to the end of the lease, so it does not matter which observation has moved the watermark.
    """
    cluster = draft.cluster(observed)
    watermark = cluster.primary_watermark
    if watermark is None:
        return
    if cluster.cluster_id not in draft.next_lapse:
        draft.next_lapse[cluster.cluster_id] = next_lapse(draft.brokers_of(cluster.cluster_id))
    first = draft.next_lapse[cluster.cluster_id]
    if first is None or first >= watermark:
        return
    for broker in draft.brokers_of(cluster.cluster_id):
        step = None if broker.maintenance_until is None else lapse(broker, watermark)
        if step is not None:
            after, at, events = step
            _stepped(after, _at(at, observed), draft, f"lapse/{at}", events)


def _at(moment: Micros, observed: Observation) -> Heartbeat:
    return Heartbeat(
        cluster_id=observed.cluster_id,
        cluster=observed.cluster,
        source=LAPSE_SOURCE,
        source_kind=SourceKind.NONE,
        occurred_not_before=moment,
        occurred_not_after=moment,
        collected_at=moment,
    )


def _stepped(
    after: BrokerState, observed: Observation, draft: Draft, lease: str, events: list[MaintenanceEvent]
) -> None:
    draft.put_broker(after)
    draft.next_lapse.pop(after.cluster_id, None)
    identity = f"{after.cluster_id}/broker/{after.broker}/maintenance/{lease}"
    draft.changes.append(
        Change(
            subject=Subject.BROKER,
            observation=observed,
            events=with_event_ids(identity, iter(events)),
            broker_after=after,
        )
    )
