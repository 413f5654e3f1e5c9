"""The steps of planned work, written into a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.change import Change
from streaming.changes.maintenance import announce, lapse, next_lapse
from streaming.changes.partition_events import with_event_ids
from streaming.contracts.events import Subject
from streaming.contracts.observations import Heartbeat, SourceKind

if TYPE_CHECKING:
    from streaming.changes.draft import Draft
    from streaming.changes.maintenance import MaintenanceEvent
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.maintenance import MaintenanceObserved
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import BrokerState

# Nobody reports that a lease lapses: the source of that change.
LAPSE_SOURCE: Final = "maintenance:lapse"


def announced(observed: MaintenanceObserved, draft: Draft) -> None:
    """Apply a record of planned work; of a broker that no source has reported it is dropped."""
    before = draft.broker(observed.cluster_id, observed.broker)
    step = None if before is None else announce(before, observed, draft.cluster(observed).authority_watermark)
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
    watermark = cluster.authority_watermark
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
        authority=SourceKind.NONE,
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
