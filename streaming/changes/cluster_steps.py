"""The steps of brokers, clusters and sources, written into a draft."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.maintenance import with_return
from streaming.changes.partitions import with_event_ids
from streaming.changes.sources import MAX_SKEW, SILENCE, has_passed, has_reported, may_order, replaces_log
from streaming.changes.state import CLUSTER_DEFAULT, Change, ConfiguredTimes, Event, is_news, reported_value
from streaming.changes.steps import reconfigured
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import (
    CLUSTER_TIMES,
    DISKLESS,
    EXPIRED_CERTIFICATE,
    MIN_ISR,
    ConfigOrigin,
    SourceKind,
)
from streaming.contracts.state import BrokerState, ConfigKey, ConfigValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.changes.partitions import PendingEvent
    from streaming.changes.steps import Draft
    from streaming.contracts.observations import (
        BrokerObserved,
        ConfigObserved,
        ControllerObserved,
        Observation,
        SnapshotBegin,
        SnapshotEnd,
    )
    from streaming.contracts.state import ClusterState, SourceState

QUORUM_REPEATED: Final = 60_000_000
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}")  # 30,000 years, which are still 64 bits in microseconds


# The cluster: its primary source, name, metadata log and quorum.


def change_primary_source(observed: Observation, draft: Draft) -> ClusterState:
    """Record the kind of the primary source if it changed; return the cluster. The first one is no event."""
    cluster = draft.cluster(observed)
    if cluster.primary_source is observed.source_kind:
        return cluster
    after = cluster._replace(primary_source=observed.source_kind)
    if cluster.primary_source is SourceKind.NONE:
        cluster_stepped(after, observed, draft, ())
        return after
    detail = f"{cluster.primary_source} to {observed.source_kind}"
    identity = f"{observed.cluster_id}/primary_source/{observed.source}/{observed.sequence}"
    events: list[PendingEvent] = [(EventKind.PRIMARY_SOURCE_CHANGE, None, detail)]
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


def controllers_registered(observed: ControllerObserved, draft: Draft) -> ClusterState:
    """Take over which controllers are registered, as the metadata log says; return the cluster."""
    cluster = draft.cluster(observed)
    after = cluster._replace(
        registered_controllers=observed.registered_controllers, registered_levels=observed.registered_levels
    )
    if after != cluster:
        cluster_stepped(after, observed, draft, ())
    return after


def is_of_quorum(observed: ControllerObserved) -> bool:
    """Return whether an observation is an answer about the quorum, or that there is none."""
    return observed.voters is not None or observed.is_led is not None


def quorum_stepped(observed: ControllerObserved, draft: Draft) -> None:
    """Take over the voters of the controller quorum; of the same ones only that they were reported, once a minute.

    Not before the first full report: until then there is no cluster to speak of.
    """
    cluster = draft.cluster(observed)
    at, before = observed.occurred_not_after, cluster.quorum_observed_at
    if before is not None and before > (cluster.primary_watermark or before) + MAX_SKEW:
        before = None  # the clock of who reported that was ahead
    if not cluster.has_baseline or (before is not None and at < before):
        return
    voters = cluster.quorum_voters if observed.voters is None else observed.voters
    after = cluster._replace(
        quorum_voters=voters, quorum_caught_up=observed.caught_up, quorum_observed_at=at, is_quorum_led=observed.is_led
    )
    is_same = after._replace(quorum_observed_at=before) == cluster
    if is_same and before is not None and at - before < QUORUM_REPEATED:
        return
    cluster_stepped(after, observed, draft, ())


def controller_stalled(observed: ControllerObserved, draft: Draft) -> None:
    """Record that the controller stood still; a stall that begins soon after another one is the same one, longer."""
    cluster, until = draft.cluster(observed), observed.occurred_not_after
    since, last = observed.silent_since, cluster.controller_silent_until
    if since is None or not may_order(cluster, observed) or until <= (last or 0):
        draft.drop(observed)
        return
    times = ConfiguredTimes().configured(None, cluster.broker_session_timeout_ms)
    seconds = (until - since) / 1_000_000
    if last is not None and since - last <= times.awake_in_stall:
        since = cluster.controller_silent_since
    after = cluster._replace(controller_silent_since=since, controller_silent_until=until)
    detail = f"controller {observed.controller} wrote nothing for {seconds:.3g} s"
    identity = f"{observed.cluster_id}/controller_stalled/{observed.controller_epoch}/{observed.metadata_offset}"
    events: list[PendingEvent] = [(EventKind.CONTROLLER_STALLED, BrokerId(observed.controller), detail)]
    cluster_stepped(after, observed, draft, with_event_ids(identity, iter(events)))


# Brokers: whether an observation is accepted, and its events.


# Column of the state <- field of the observation. A field that is None says nothing, but of a new registration in the
# metadata log it says all: what the new broker has not, such as a rack, is not that of the one before.
_REPORTED: Final = {
    "broker_epoch": "broker_epoch",
    "is_fenced": "fenced",
    "is_shutting_down": "in_controlled_shutdown",
    "rack": "rack",
    "host": "host",
    "port": "port",
    "log_dirs": "log_dirs",
    "newest_metadata_version": "newest_metadata_version",
}


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
    if observed.source_kind is SourceKind.POLL:
        after = before._replace(is_fenced=True, is_unseen=None)
    else:
        after = before._replace(is_registered=False)
    if after != before:
        broker_stepped(before, after, observed, draft)


def next_broker(before: BrokerState | None, observed: BrokerObserved) -> BrokerState | None:
    """Apply one observation; None where it is older than the state."""
    if before is not None and _is_older(before, observed):
        return None
    current = before or BrokerState(cluster_id=observed.cluster_id, cluster=observed.cluster, broker=observed.broker)
    is_new = observed.broker_epoch is not None and observed.broker_epoch != current.broker_epoch
    reported = {
        column: getattr(observed, name)
        for column, name in _REPORTED.items()
        if is_new or getattr(observed, name) is not None
    }
    if observed.source_kind is SourceKind.POLL and not observed.fenced:
        # Brokers list those that they take for alive, and ISRs name others. What the metadata log, or a poll before,
        # said of an earlier shutdown is not known to hold any more.
        reported |= {"is_fenced": False, "is_shutting_down": observed.in_controlled_shutdown}
        reported |= {"rack": observed.rack} if observed.in_snapshot and not observed.unseen else {}
    offset = observed.metadata_offset
    return with_return(
        current._replace(
            **reported,
            is_registered=observed.registered,
            is_unseen=observed.unseen,
            broker_metadata_offset=current.broker_metadata_offset if offset is None or observed.in_snapshot else offset,
        )
    )


def _is_older(before: BrokerState, observed: BrokerObserved) -> bool:
    if observed.metadata_offset is None or before.broker_metadata_offset is None:
        return False
    if observed.in_snapshot:
        return observed.metadata_offset < before.broker_metadata_offset
    return observed.metadata_offset <= before.broker_metadata_offset


def broker_events(before: BrokerState | None, after: BrokerState) -> Iterator[PendingEvent]:
    """Yield the events between two states of one broker."""
    broker = after.broker
    was_registered = before is not None and before.is_registered
    if after.is_registered and (not was_registered or _is_new_epoch(before, after)):
        yield EventKind.REGISTERED, broker, None
    if not after.is_registered and was_registered:
        yield EventKind.UNREGISTERED, broker, None
        return
    if before is None:
        return
    if after.is_fenced and before.is_fenced is False:
        yield EventKind.FENCED, broker, None
    if after.is_fenced is False and before.is_fenced:
        yield EventKind.UNFENCED, broker, None
    if after.is_shutting_down and not before.is_shutting_down:
        yield EventKind.SHUTTING_DOWN, broker, None
    if lost := _lost_log_dirs(before, after):
        yield EventKind.LOG_DIR_OFFLINE, broker, ", ".join(lost)


def _is_new_epoch(before: BrokerState | None, after: BrokerState) -> bool:
    return before is not None and before.broker_epoch is not None and before.broker_epoch != after.broker_epoch


def _lost_log_dirs(before: BrokerState, after: BrokerState) -> list[str]:
    if before.log_dirs is None or after.log_dirs is None:
        return []
    # A disk may fail while a broker restarts. One with others was replaced, or its machine was; some report none.
    is_same = before.is_registered and set() < set(after.log_dirs) < set(before.log_dirs)
    if _is_new_epoch(before, after) and not is_same:
        return []
    return [directory for directory in before.log_dirs if directory not in after.log_dirs]


# Configurations, of topics and of the cluster.


UNSET: Final = ConfigValue(None, None)
_OF_TOPICS: Final = frozenset({MIN_ISR, DISKLESS})


def configured(observed: ConfigObserved, draft: Draft) -> None:
    """Apply a time of the cluster, or the value of a topic or of all topics, then also to their partitions."""
    if observed.key in CLUSTER_TIMES:
        configure_time(observed, draft)
        return
    if observed.key == EXPIRED_CERTIFICATE:
        before = draft.cluster(observed)
        if before.expired_certificate != observed.value:
            cluster_stepped(before._replace(expired_certificate=observed.value), observed, draft, ())
        return
    if observed.brokers is not None:
        _configure_brokers(observed, draft)
        return
    is_default = observed.topic == CLUSTER_DEFAULT
    is_log = observed.origin is ConfigOrigin.LOG
    is_unknown = observed.key not in _OF_TOPICS or (is_default and observed.key == DISKLESS)
    if is_unknown or (is_log and not may_order(draft.cluster(observed), observed)):
        draft.drop(observed)
        return
    key, value = reported_value(observed)
    if not is_news(value, draft.config(key)):
        return
    if _is_passed(observed, draft):
        return
    is_removed = is_log and value.value is None
    configs = {key: value, **dict.fromkeys(_outdated(key, draft) if is_removed else (), UNSET)}
    cluster_stepped(draft.cluster(observed), observed, draft, (), configs)
    ids_of_topic = draft.topic_named(observed.cluster_id, observed.topic)
    for topic_id in list(draft.topic_ids(observed.cluster_id)) if is_default else ids_of_topic:
        reconfigured(topic_id, observed, draft)


def configure_time(observed: ConfigObserved, draft: Draft) -> None:
    """Set a configured time of the cluster, one of ``CLUSTER_TIMES``; what is no number is not known."""
    cluster, column = draft.cluster(observed), CLUSTER_TIMES[observed.key]
    is_time = observed.value is not None and _MILLISECONDS.fullmatch(observed.value) is not None
    configured: dict[str, Any] = {column: int(observed.value or 0)} if is_time else {}
    after = cluster._replace(**configured)
    if after != cluster:
        cluster_stepped(after, observed, draft, ())


def _configure_brokers(observed: ConfigObserved, draft: Draft) -> None:
    """Set the minimum of the own configuration of brokers, and apply it to the partitions that leave it to them.

    It may arrive before the primary source reports a broker: until then that one is not registered. The metadata log
    names all brokers for which one is set, so that none is for the others.
    """
    is_changed, name = False, draft.cluster(observed).cluster
    is_log = observed.origin is ConfigOrigin.LOG
    minima: dict[BrokerId, int] = dict(zip(observed.brokers or (), observed.values or (), strict=True))
    if is_log:
        if not may_order(draft.cluster(observed), observed) or _is_passed(observed, draft):
            draft.drop(observed)
            return
        minima = dict.fromkeys((each.broker for each in draft.brokers_of(observed.cluster_id)), -1) | minima
    column = "min_isr_dynamic" if is_log else "min_isr"
    for broker, value in sorted(minima.items()):
        before = draft.broker(observed.cluster_id, broker)
        new = BrokerState(cluster_id=observed.cluster_id, cluster=name, broker=broker, is_registered=False)
        minimum: dict[str, Any] = {column: None if value < 0 else value}
        after = (before or new)._replace(**minimum)
        if after != (before or new):
            broker_stepped(before, after, observed, draft)
            is_changed = True
    if not is_changed and not is_log:  # what a full report of the log repeats is nothing that is dropped
        draft.drop(observed)
    for topic_id in list(draft.topic_ids(observed.cluster_id)) if is_changed else ():
        reconfigured(topic_id, observed, draft)


def _is_passed(observed: ConfigObserved, draft: Draft) -> bool:
    """Return whether another source that reads the metadata log is beyond an observation."""
    return any(has_passed(other, observed.metadata_offset) for other in draft.other_sources(observed))


def _outdated(key: ConfigKey, draft: Draft) -> list[ConfigKey]:
    """List the values that brokers have reported and that a removal in the metadata log may have made wrong.

    A broker reports the value that counts, so it may be the one that was removed. Until brokers are asked again the
    value is unknown.
    """
    if key.topic != CLUSTER_DEFAULT:
        described = key._replace(origin=ConfigOrigin.DESCRIBE)
        return [] if draft.config(described) is None else [described]
    described_of = (key.cluster_id, ConfigOrigin.DESCRIBE, key.key)
    return [each for each in draft.config_keys() if (each.cluster_id, each.origin, each.key) == described_of]


# Sources: what is missing of one, and how far each was applied.


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
        source_kind=observed.source_kind,
        sequence=observed.sequence or source.sequence,
        offset=_later(source.offset, getattr(observed, "metadata_offset", None)),
        observed_until=_later(source.observed_until, observed.occurred_not_after),
        collected_at=observed.collected_at,  # not the newest: a clock that was ahead once would hide a silence
    )
    cluster = draft.cluster(observed)
    is_primary = observed.source_kind is cluster.primary_source and observed.source_kind is not SourceKind.NONE
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
