"""The steps of brokers, clusters and sources, written into a draft."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.brokers import broker_events
from streaming.changes.change import Change, Event
from streaming.changes.clock_skew import MAX_SKEW
from streaming.changes.partition_events import with_event_ids
from streaming.changes.primary_source import SILENCE, has_reported, replaces_log
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.observations import CLUSTER_TIMES, SourceKind

QUORUM_REPEATED: Final = 60_000_000
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}")  # 30,000 years, which are still 64 bits in microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.changes.draft import Draft
    from streaming.changes.partition_events import PendingEvent
    from streaming.contracts.observations import (
        ConfigObserved,
        ControllerObserved,
        Observation,
        SnapshotBegin,
        SnapshotEnd,
    )
    from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, SourceState


def change_primary_source(observed: Observation, draft: Draft) -> ClusterState:
    """Record the kind of the primary source if it changed; return the cluster. The first one is no event."""
    cluster = draft.cluster(observed)
    if cluster.authority is observed.authority:
        return cluster
    after = cluster._replace(authority=observed.authority)
    if cluster.authority is SourceKind.NONE:
        cluster_stepped(after, observed, draft, ())
        return after
    detail = f"{cluster.authority} to {observed.authority}"
    identity = f"{observed.cluster_id}/authority/{observed.source}/{observed.sequence}"
    events: list[PendingEvent] = [(EventKind.AUTHORITY_CHANGE, None, detail)]
    cluster_stepped(after, observed, draft, with_event_ids(identity, iter(events)))
    return after


def cluster_stepped(
    after: ClusterState,
    observed: Observation,
    draft: Draft,
    events: tuple[Event, ...],
    configs: Mapping[ConfigKey, ConfigValue] | None = None,
) -> None:
    """Add a new state of a cluster, with the configured values that came with it."""
    if configs:
        draft.put_configs(configs)
    draft.put_cluster(after)
    values = tuple((configs or {}).items())
    draft.changes.append(
        Change(subject=Subject.CLUSTER, observation=observed, events=events, cluster_after=after, configs=values)
    )


def renamed(observed: SnapshotBegin, draft: Draft) -> None:
    """Take over the name that a full report has for the cluster, unless another source still uses the one before."""
    cluster = draft.cluster(observed)
    if observed.cluster == cluster.cluster or not cluster.has_baseline:
        return
    users = [other for other in draft.other_sources(observed) if other.cluster == cluster.cluster]
    if all(observed.occurred_not_after - (user.observed_until or 0) > SILENCE for user in users):
        cluster_stepped(cluster._replace(cluster=observed.cluster), observed, draft, ())


def log_replaced(observed: SnapshotBegin, draft: Draft) -> bool:
    """Forget offsets and epochs where the metadata log is another one; return whether this is the first report of it.

    Those of partitions are forgotten one by one, when something is compared with them (``partitions.in_present_log``).
    """
    source, cluster = draft.source(observed), draft.cluster(observed)
    draft.touched.sources[observed.cluster_id, observed.source] = source._replace(offset=None)
    if not replaces_log(cluster, source.observed_until):
        return False
    since = observed.occurred_not_after
    configs = {
        key: value._replace(offset=None)
        for key in draft.config_keys()
        if key.cluster_id == observed.cluster_id and (value := draft.config(key)) is not None
    }
    after = cluster._replace(metadata_log_since=since, controller_epoch=None)
    detail = f"{observed.source} finds another metadata log: what the one before it contained at its end is missing"
    identity = f"{observed.cluster_id}/metadata_log/{since}"
    events: list[PendingEvent] = [(EventKind.CHANGES_MISSED, None, detail)]
    cluster_stepped(after, observed, draft, with_event_ids(identity, iter(events)), configs)
    for broker in draft.brokers_of(observed.cluster_id):
        broker_stepped(broker, broker._replace(broker_metadata_offset=None), observed, draft)
    return True


def quorum_stepped(observed: ControllerObserved, draft: Draft) -> None:
    """Take over the voters of the controller quorum; of the same ones only that they were reported, once a minute.

    Not before the first full report: until then there is no cluster to speak of.
    """
    cluster = draft.cluster(observed)
    at, before = observed.occurred_not_after, cluster.quorum_observed_at
    if before is not None and before > (cluster.authority_watermark or before) + MAX_SKEW:
        before = None  # the clock of who reported that was ahead
    if not cluster.has_baseline or (before is not None and at < before):
        return
    is_same = (observed.voters, observed.caught_up) == (cluster.quorum_voters, cluster.quorum_caught_up)
    if is_same and before is not None and at - before < QUORUM_REPEATED:
        return
    after = cluster._replace(quorum_voters=observed.voters, quorum_caught_up=observed.caught_up, quorum_observed_at=at)
    cluster_stepped(after, observed, draft, ())


def configure_time(observed: ConfigObserved, draft: Draft) -> None:
    """Set a configured time of the cluster, one of ``CLUSTER_TIMES``; what is no number is not known."""
    cluster, column = draft.cluster(observed), CLUSTER_TIMES[observed.key]
    is_time = observed.value is not None and _MILLISECONDS.fullmatch(observed.value) is not None
    configured: dict[str, Any] = {column: int(observed.value or 0)} if is_time else {}
    after = cluster._replace(**configured)
    if after != cluster:
        cluster_stepped(after, observed, draft, ())


def broker_stepped(before: BrokerState | None, after: BrokerState, observed: Observation, draft: Draft) -> None:
    """Add a new state of a broker; the first full report of a cluster gives no events."""
    is_baseline = before is None and not draft.cluster(observed).has_baseline
    events = iter(()) if is_baseline else broker_events(before, after)
    offset = getattr(observed, "metadata_offset", None)
    moment = observed.occurred_not_after if offset is None else offset
    identity = f"{after.cluster_id}/broker/{after.broker}/{moment}"
    draft.put_broker(after)
    draft.changes.append(
        Change(
            subject=Subject.BROKER,
            observation=observed,
            is_baseline=is_baseline,
            events=with_event_ids(identity, events),
            broker_after=after,
        )
    )


def broker_missing(before: BrokerState, observed: SnapshotEnd, draft: Draft) -> None:
    """Handle a full report without a broker: in the log it is unregistered, in a poll it is not alive."""
    offset, newest_offset = observed.metadata_offset, before.broker_metadata_offset
    if offset is not None and newest_offset is not None and offset < newest_offset:
        return
    if observed.authority is SourceKind.POLL:
        after = before._replace(is_fenced=True)
    else:
        after = before._replace(is_registered=False)
    if after != before:
        broker_stepped(before, after, observed, draft)


def sequence_gap(source: SourceState, observed: Observation, draft: Draft) -> None:
    """Record that observations of a source are missing; its next full report corrects the states.

    They cannot arrive later: a bus keeps the order of each source, and one process at a time writes a source's log. If
    another collector has reported as far, no change of Kafka was missed. A collector that lags may still report them;
    the partition epochs show how many changes of a partition no source reported.
    """
    if any(has_reported(other_source, observed) for other_source in draft.other_sources(observed)):
        return
    missing = observed.sequence - source.sequence - 1
    detail = f"{missing} observations of {observed.source} are missing, after number {source.sequence}"
    identity = f"{observed.cluster_id}/source/{observed.source}/{source.sequence}"
    events: list[PendingEvent] = [(EventKind.CHANGES_MISSED, None, detail)]
    cluster_stepped(draft.cluster(observed), observed, draft, with_event_ids(identity, iter(events)))


def advance(observed: Observation, draft: Draft) -> None:
    """Move the watermarks of source and cluster up to an observation."""
    source = draft.source(observed)
    draft.touched.sources[observed.cluster_id, observed.source] = source._replace(
        cluster=observed.cluster,
        authority=observed.authority,
        sequence=observed.sequence or source.sequence,
        offset=_later(source.offset, getattr(observed, "metadata_offset", None)),
        observed_until=_later(source.observed_until, observed.occurred_not_after),
        collected_at=observed.collected_at,  # not the newest: a clock that was ahead once would hide a silence
    )
    cluster = draft.cluster(observed)
    is_primary = observed.authority is cluster.authority and observed.authority is not SourceKind.NONE
    draft.put_cluster(cluster.with_watermark(observed.occurred_not_after, is_primary=is_primary))


def source_changes(draft: Draft, last: dict[tuple[str, str], Observation]) -> Iterator[Change]:
    """Yield how far each source was applied: one change per source that reported."""
    duplicates = draft.duplicates()
    for key in sorted(last):
        observed = last[key]
        source = draft.source(observed)
        source = source._replace(duplicates=source.duplicates + duplicates[observed.cluster_id, observed.source])
        draft.touched.sources[observed.cluster_id, observed.source] = source
        yield Change(subject=Subject.SOURCE, observation=observed, source_after=source)


def _later(newest: int | None, observed: int | None) -> Any:  # noqa: ANN401 - Micros, Offset or None alike
    return max((value for value in (newest, observed) if value is not None), default=None)
