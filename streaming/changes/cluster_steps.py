"""The steps of brokers, clusters and sources, written into a draft."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streaming.changes.authority import has_told
from streaming.changes.brokers import broker_happenings
from streaming.changes.change import Change, Event, Subject
from streaming.changes.happened import named
from streaming.contracts.events import EventKind
from streaming.contracts.observations import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.changes.draft import Draft
    from streaming.changes.happened import Happening
    from streaming.changes.state import BrokerState, ClusterState, SourceState
    from streaming.contracts.observations import Observation, SnapshotEnd


def take_authority(observed: Observation, draft: Draft) -> ClusterState:
    """Record who orders the cluster, where it is somebody new; give the cluster. The first one is no event."""
    cluster = draft.cluster(observed)
    if cluster.authority is observed.authority:
        return cluster
    after = replace(cluster, authority=observed.authority)
    if cluster.authority is Authority.NONE:
        cluster_stepped(after, observed, draft, ())
        return after
    detail = f"{cluster.authority} to {observed.authority}"
    identity = f"{observed.cluster_id}/authority/{observed.source}/{observed.sequence}"
    happened: list[Happening] = [(EventKind.AUTHORITY_CHANGE, None, detail)]
    cluster_stepped(after, observed, draft, named(identity, iter(happened)))
    return after


def cluster_stepped(after: ClusterState, observed: Observation, draft: Draft, events: tuple[Event, ...]) -> None:
    """Take a new state of a cluster over."""
    draft.put_cluster(after)
    draft.changes.append(Change(subject=Subject.CLUSTER, observation=observed, events=events, cluster_after=after))


def broker_stepped(before: BrokerState | None, after: BrokerState, observed: Observation, draft: Draft) -> None:
    """Take a new state of a broker over; the first sight of a cluster tells states, not events."""
    is_baseline = before is None and not draft.cluster(observed).has_baseline
    happened = iter(()) if is_baseline else broker_happenings(before, after)
    offset = getattr(observed, "metadata_offset", None)
    moment = observed.occurred_not_after if offset is None else offset
    identity = f"{after.cluster_id}/broker/{after.broker}/{moment}"
    draft.put_broker(after)
    draft.changes.append(
        Change(
            subject=Subject.BROKER,
            observation=observed,
            is_baseline=is_baseline,
            events=named(identity, happened),
            broker_after=after,
        )
    )


def broker_missing(before: BrokerState, observed: SnapshotEnd, draft: Draft) -> None:
    """A complete sight does not name a broker: the log says it is unregistered, a poll that it is not alive."""
    offset, known = observed.metadata_offset, before.broker_metadata_offset
    if offset is not None and known is not None and offset < known:
        return
    if observed.authority is Authority.POLL:
        after = replace(before, is_fenced=True)
    else:
        after = replace(before, is_registered=False)
    if after != before:
        broker_stepped(before, after, observed, draft)


def sequence_gap(source: SourceState, observed: Observation, draft: Draft) -> None:
    """Tell that observations of a source never arrived; its next snapshot makes their states good.

    Nobody waits for them: a bus keeps each source's order, and one process at a time writes a source's log, so what is
    not there when its successor is will never come. Where another collector has told as much, nothing was missed of
    Kafka. One that is still behind may tell it later; partitions' epochs say how many of their changes nobody told.
    """
    if any(has_told(it, observed) for it in draft.other_sources(observed)):
        return
    missing = observed.sequence - source.sequence - 1
    detail = f"{missing} observations of {observed.source} are missing, after number {source.sequence}"
    identity = f"{observed.cluster_id}/source/{observed.source}/{source.sequence}"
    happened: list[Happening] = [(EventKind.CHANGES_MISSED, None, detail)]
    cluster_stepped(draft.cluster(observed), observed, draft, named(identity, iter(happened)))


def advance(observed: Observation, draft: Draft) -> None:
    """Move the watermarks of source and cluster up to an observation."""
    source = draft.source(observed)
    draft.touched.sources[observed.cluster_id, observed.source] = replace(
        source,
        cluster=observed.cluster,
        authority=observed.authority,
        sequence=observed.sequence or source.sequence,
        offset=_later(source.offset, getattr(observed, "metadata_offset", None)),
        observed_until=_later(source.observed_until, observed.occurred_not_after),
        collected_at=_later(source.collected_at, observed.collected_at),
    )
    cluster = draft.cluster(observed)
    is_authority = observed.authority is cluster.authority and observed.authority is not Authority.NONE
    draft.put_cluster(cluster.seen(observed.occurred_not_after, is_authority=is_authority))


def source_changes(draft: Draft, last: dict[tuple[str, str], Observation]) -> Iterator[Change]:
    """Tell how far each source came: one change a source that was heard."""
    duplicates = draft.duplicates()
    for key in sorted(last):
        observed = last[key]
        source = draft.source(observed)
        source = replace(source, duplicates=source.duplicates + duplicates[observed.cluster_id, observed.source])
        draft.touched.sources[observed.cluster_id, observed.source] = source
        yield Change(subject=Subject.SOURCE, observation=observed, source_after=source)


def _later(known: int | None, told: int | None) -> Any:  # noqa: ANN401 - Micros, Offset or None alike
    return max((value for value in (known, told) if value is not None), default=None)
