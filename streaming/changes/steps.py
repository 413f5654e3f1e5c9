"""The steps of a partition, written into a draft: it appeared, changed, vanished, or got another min ISR."""

# Theory of operation
#
# A draft is a fold in progress. It reads from two layers: what this fold has touched, and below it the state before. It
# writes to the upper layer only. When the fold is done, ``touched`` and the changes leave as one ``FoldResult``, and
# the owner applies ``touched`` to the state after the changes are committed, not before.
#
# Why the state before must not change: the commit may fail. Another writer may have come first, the disk may be full,
# the process may be killed between fold and commit. Then the state has to be that of the last committed version, or the
# retried batch would be dropped as a replay of what no table holds. An upper layer that is simply forgotten costs
# nothing; a copy of a million partitions, or taking steps back, would.
#
# "Does not change" is about content. Topics that nothing has asked for since the start are columns of a table
# (``ReplicationState.stored``); looking one up decodes it and moves it to ``topics``. A lookup by key decodes one
# topic, so who visits many loads them at once (``topic_ids``, ``topics_beyond``). A topic need not be decoded at
# the end of a full report that does not lack any of its partitions: ``topics_beyond`` compares counts in the columns.
# It can be skipped because no stored topic has a tombstone, so "has more partitions than listed" is all there is to
# ask.
#
# A layer is a dictionary over a dictionary, and "no entry" in the upper one means "as before". So nothing can be
# removed in a draft: a deleted partition is replaced by its tombstone, an unset value by None. Tombstones leave the
# state when the owner applies a cluster that has dropped them (``tombstones``), never within a fold.
#
# A step is one function here: it builds the state after, puts it, and appends one ``Change`` with the state before and
# after, cause, evidence and events. The order of the calls is the order of the rows in the change log. Two things are
# done in each step before health is derived, because the time since the last change may not have been observed:
# ``partitions.settled`` books a gap of the whole cluster, ``partitions.with_unobserved_gap`` one that only a jump of
# this partition's epoch proves. The same time is never booked by both (``_is_gap_of_all``).
#
# Invariants
#   1. For every key, ``touched`` has the newest value or no entry; a reader asks it first.
#   2. ``changes`` is in the order of acceptance. The last change of a partition or broker is its entry in ``touched``,
#      so a start can rebuild the state from the newest row of each key. Watermarks of a cluster alone move without a
#      change; a start takes them from the sources (``ReplicationState.watch``). tests/delta/test_change_log.py.
#   3. A partition is put by exactly one step per accepted observation, so ``change_number`` grows by one.
#   4. ``listed`` is used only where neither layer knows the topic, and only before a baseline: it has no state before,
#      no cause and no event. ``fold``; tests/changes/test_listed.py.
#   5. A proof (``revised``) moves cause and evidence of the last step at most, and no count.
#      tests/changes/test_revised_causes.py.

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from streaming.changes import partitions
from streaming.changes.partitions import (
    IsrStep,
    events_between,
    events_of_first,
    isr_step,
    updated_totals,
    violations,
    with_event_ids,
)
from streaming.changes.state import (
    BrokerMinima,
    Change,
    ConfiguredTimes,
    ListedPartitions,
    ReplicationState,
    topic_config,
)
from streaming.contracts.blocks import shape_of
from streaming.contracts.events import Cause, EventKind, Evidence, Subject
from streaming.contracts.observations import ConfigOrigin, Observation, SourceKind
from streaming.contracts.state import TOTALS, ClusterState, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.changes.partitions import PendingEvent
    from streaming.changes.state import TopicConfig
    from streaming.contracts.blocks import PartitionsObserved
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
    from streaming.contracts.observations import CauseRevised, ConfigObserved, PartitionObserved
    from streaming.contracts.state import BrokerState, ConfigKey, ConfigValue, PartitionState

AnyObservation = TypeVar("AnyObservation", bound=Observation)


# A fold in progress: the state that it touched, over the state before, which it must not change.


class Draft:
    """Collects what a fold changes; what it has not touched is read from the state before."""

    def __init__(self, before: ReplicationState) -> None:
        # Its content never changes while the draft exists; looking topics up may decode them.
        self._before = before
        # The newest value of each key, or no entry: as before. Written by put methods; sources by ``cluster_steps``.
        self.touched = ReplicationState()
        # In the order of acceptance; appended to by steps alone, after the state was put. Nothing is removed.
        self.changes: list[Change] = []
        # Only what a full report did not repeat: it counts duplicates of each source.
        self.dropped: list[Observation] = []
        # Shared by all blocks of the batch: partitions of one shape are one object. The key is all that a state is made
        # of, but for ``IDENTITY_IN_BLOCK`` and the topic; ``listed`` fills it.
        self.first_of_shape: dict[tuple[Any, ...], PartitionState] = {}
        # Of the cluster, before the observation that is being applied: this one may take over. Set by ``fold``.
        self.primary_before = SourceKind.NONE
        # Derived from ``config``; emptied when any value is put.
        self._topic_configs: dict[tuple[ClusterId, str], TopicConfig] = {}
        # Derived from brokers by cluster; emptied, with the former, when one of them is put that differs in it.
        self._minima: dict[ClusterId, dict[BrokerId, BrokerMinima]] = {}
        # By cluster, when its next announced work lapses; kept by ``maintenance``.
        self.next_lapse: dict[ClusterId, Micros | None] = {}

    def partition(self, cluster_id: ClusterId, topic_id: TopicId, number: int) -> PartitionState | None:
        """Look one partition up."""
        key = (cluster_id, topic_id)
        touched = self.touched.topics.get(key, {}).get(number)
        return touched or self._before.topic(key).get(number)

    def topic(self, cluster_id: ClusterId, topic_id: TopicId) -> Mapping[int, PartitionState]:
        """Look the partitions of one topic up, tombstones included."""
        key = (cluster_id, topic_id)
        before, touched = self._before.topic(key), self.touched.topics.get(key)
        return {**before, **touched} if before and touched else touched or before

    def partitions_of(self, cluster_id: ClusterId, topic_id: TopicId) -> list[PartitionState]:
        """List the partitions of one topic, tombstones included, by number."""
        merged = self.topic(cluster_id, topic_id)
        return [merged[number] for number in sorted(merged)]

    def topic_ids(self, cluster_id: ClusterId) -> Iterator[TopicId]:
        """Iterate over the topics of one cluster, in a stable order. To do so loads all of their partitions."""
        keys = {key for key in (*self._before.topic_keys(), *self.touched.topics) if key[0] == cluster_id}
        self._before.load(keys)
        yield from sorted(topic_id for _, topic_id in keys)

    def topics_beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> list[TopicId]:
        """List the topics of a cluster that have more partitions than these, tombstones included, in a stable order."""
        keys = {*self._before.topics_beyond(cluster_id, counts), *self.touched.topics_beyond(cluster_id, counts)}
        self._before.load(keys)
        return sorted(topic_id for _, topic_id in keys)

    def topic_named(self, cluster_id: ClusterId, topic: str) -> list[TopicId]:
        """Look a topic up by its name: one id, or none."""
        key = (cluster_id, topic)
        topic_id = self.touched.topic_ids.get(key) or self._before.topic_ids.get(key)
        return [] if topic_id is None else [topic_id]

    def broker(self, cluster_id: ClusterId, broker: BrokerId) -> BrokerState | None:
        """Look one broker up."""
        key = (cluster_id, broker)
        return self.touched.brokers.get(key) or self._before.brokers.get(key)

    def brokers_of(self, cluster_id: ClusterId) -> list[BrokerState]:
        """List the brokers of one cluster, by id."""
        merged = {**self._before.brokers, **self.touched.brokers}
        return [merged[key] for key in sorted(merged) if key[0] == cluster_id]

    def cluster(self, observed: Observation) -> ClusterState:
        """Look the observation's cluster up; an unknown one is new."""
        cluster = self.touched.clusters.get(observed.cluster_id) or self._before.clusters.get(observed.cluster_id)
        return cluster or ClusterState(cluster_id=observed.cluster_id, cluster=observed.cluster)

    def source(self, observed: Observation) -> SourceState:
        """Look the observation's source up; an unknown one is new."""
        key = (observed.cluster_id, observed.source)
        source = self.touched.sources.get(key) or self._before.sources.get(key)
        return source or SourceState(
            cluster_id=observed.cluster_id,
            cluster=observed.cluster,
            source=observed.source,
            source_kind=observed.source_kind,
        )

    def other_sources(self, observed: Observation) -> list[SourceState]:
        """List the other sources of the observation's cluster, by name; no offset of a log that was replaced."""
        merged = {**self._before.sources, **self.touched.sources}
        ours, since = (observed.cluster_id, observed.source), self.cluster(observed).metadata_log_since
        others = [merged[key] for key in sorted(merged) if key[0] == observed.cluster_id and key != ours]
        return [
            other._replace(offset=None) if (other.observed_until or 0) < (since or 0) else other for other in others
        ]

    def config(self, key: ConfigKey) -> ConfigValue | None:
        """Look one configured value up."""
        return self.touched.configs.get(key) or self._before.configs.get(key)

    def topic_config(self, cluster_id: ClusterId, topic: str) -> TopicConfig:
        """Return what is configured for a topic; each of its partitions asks for it with each change."""
        config = self._topic_configs.get((cluster_id, topic))
        if config is None:
            of_brokers = self._min_isr_of_brokers(cluster_id)
            config = self._topic_configs[cluster_id, topic] = topic_config(self.config, cluster_id, topic, of_brokers)
        return config

    def _min_isr_of_brokers(self, cluster_id: ClusterId) -> dict[BrokerId, BrokerMinima]:
        """Return the minima of each registered broker's own configuration."""
        if (minima := self._minima.get(cluster_id)) is None:
            brokers = (broker for broker in self.brokers_of(cluster_id) if broker.is_registered)
            minima = self._minima[cluster_id] = {
                broker.broker: BrokerMinima(broker.min_isr, broker.min_isr_dynamic) for broker in brokers
            }
        return minima

    def put_configs(self, configs: Mapping[ConfigKey, ConfigValue]) -> None:
        """Remember configured values."""
        self.touched.configs.update(configs)
        self._topic_configs.clear()

    def config_keys(self) -> list[ConfigKey]:
        """List the configured values of all clusters, in a stable order."""
        return sorted({**self._before.configs, **self.touched.configs})

    def put_partition(self, state: PartitionState) -> None:
        """Remember the new state of a partition."""
        self.touched.mutable_topic((state.cluster_id, state.topic_id))[state.partition] = state
        if not state.is_deleted:
            self.touched.topic_ids[state.cluster_id, state.topic] = state.topic_id

    def put_listed(self, block: PartitionsObserved, partitions: ListedPartitions) -> None:
        """Remember the partitions of a topic of which nothing was known before."""
        self.touched.topics[block.cluster_id, block.topic_id] = partitions
        self.touched.topic_ids[block.cluster_id, block.topic] = block.topic_id

    def put_broker(self, state: BrokerState) -> None:
        """Remember the new state of a broker."""
        before = self.broker(state.cluster_id, state.broker)
        if before is None or _minima_of(before) != _minima_of(state):
            self._minima.clear()
            self._topic_configs.clear()
        self.touched.brokers[state.cluster_id, state.broker] = state

    def put_cluster(self, state: ClusterState) -> None:
        """Remember the new state of a cluster."""
        self.touched.clusters[state.cluster_id] = state

    def drop(self, observed: Observation) -> None:
        """Record an observation that is equal, older or not of the primary source, unless a full report repeats it."""
        if not getattr(observed, "in_snapshot", False):
            self.dropped.append(observed)

    def duplicates(self) -> Counter[tuple[ClusterId, str]]:
        """Count what was dropped of each source."""
        return Counter((observed.cluster_id, observed.source) for observed in self.dropped)


def _minima_of(broker: BrokerState) -> tuple[int | None, int | None, bool]:
    return broker.min_isr, broker.min_isr_dynamic, broker.is_registered


# The steps: each puts a state and appends its change.


def appeared(before: PartitionState | None, observed: PartitionObserved, draft: Draft) -> None:
    """Add a partition that is new (created, or observed for the first time), or that exists again."""
    config = draft.topic_config(observed.cluster_id, observed.topic)
    after = partitions.first_state(observed, config)
    after = after._replace(unobserved_micros=draft.cluster(observed).unobserved_micros)
    observed = _since_last_observation(observed, draft)
    is_baseline = observed.in_snapshot and not draft.cluster(observed).has_baseline
    missed = 0 if is_baseline else partitions.missed_between(None, observed)
    cause, evidence = (observed.cause, observed.evidence) if observed.cause else (None, None)
    if not is_baseline and cause is None:
        cause, evidence = Cause.CREATED, Evidence.INFERRED
    is_unclean = not is_baseline and after.leader_recovering and not after.is_diskless
    after = after._replace(missed_changes=missed, unclean_elections=int(is_unclean))
    after = after._replace(**_cause_columns(cause, evidence, observed))
    if before is not None:
        after = after._replace(**{name: getattr(before, name) + getattr(after, name) for name in TOTALS})
        after = after._replace(change_number=before.change_number + 1)
    events: list[PendingEvent] = [] if is_baseline else [(EventKind.TOPIC_CREATED, None, None)]
    if missed:
        events.append((EventKind.CHANGES_MISSED, None, f"{missed} changes were not seen"))
    if not is_baseline:
        events += events_of_first(after)
        events += [(EventKind.PROTOCOL_VIOLATION, None, sentence) for sentence in violations(None, after, cause)]
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            is_baseline=is_baseline,
            cause=cause,
            evidence=evidence,
            candidates=observed.candidates,
            missed=missed,
            events=with_event_ids(_identity(after), iter(events)),
            before=before,
            after=after,
        )
    )


def listed(block: PartitionsObserved, draft: Draft) -> None:
    """Add the partitions of a block of the first full report, each as ``appeared`` would, without an object of its own.

    Nothing is known of what was before, so there is no event and no cause. All that differs between two partitions of
    one shape is what identifies them, and their epochs.
    """
    config = draft.topic_config(block.cluster_id, block.topic)
    observed = _since_last_observation(block, draft)
    of_report = (block.cluster_id, block.cluster, block.source_kind, block.occurred_not_after, block.metadata_offset)
    shapes = []
    for row in block.rows():
        shape = (of_report, config, *shape_of(row))
        first = draft.first_of_shape.get(shape)
        if first is None:
            single = block.observation(row)
            first = partitions.first_state(single, config)._replace(**_cause_columns(None, None, single))
            first = first._replace(unobserved_micros=draft.cluster(observed).unobserved_micros)
            draft.first_of_shape[shape] = first
        shapes.append(first)
    partitions_of_topic = ListedPartitions(block, shapes)
    draft.put_listed(block, partitions_of_topic)
    draft.changes.append(
        Change(subject=Subject.PARTITION, observation=observed, is_baseline=True, listed=partitions_of_topic)
    )


def stepped(before: PartitionState, observed: PartitionObserved, draft: Draft) -> None:
    """Add one accepted change of an existing partition."""
    missed = partitions.missed_between(before, observed)
    cluster = draft.cluster(observed)
    base, last_seen = partitions.settled(before, cluster), _last_observed(cluster, before, observed, missed)
    if last_seen is not None:
        if not _is_gap_of_all(cluster):
            base = partitions.with_unobserved_gap(base, last_seen, observed.occurred_not_after)
        observed = replace(observed, occurred_not_before=min(last_seen, observed.occurred_not_before))
    after = partitions.next_state(base, observed, draft.topic_config(observed.cluster_id, observed.topic))
    observed = _blaming_controller(observed, cluster)
    cause, evidence = observed.cause, observed.evidence
    if cause is None:
        cause, evidence = Cause.UNKNOWN, Evidence.INFERRED
    isr = isr_step(before, after)
    is_of_isr_or_leader = isr != IsrStep() or before.leader != after.leader
    after = after._replace(
        **updated_totals(before, after, isr, cause, missed),
        **(_cause_columns(cause, evidence, observed) if is_of_isr_or_leader else {}),
    )
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=cause,
            evidence=evidence,
            candidates=observed.candidates,
            missed=missed,
            left_isr=isr.left,
            joined_isr=isr.joined,
            events=with_event_ids(
                _identity(after), events_between(before, after, isr, cause, missed, observed.because)
            ),
            before=before,
            after=after,
        )
    )


def _blaming_controller(observed: PartitionObserved, cluster: ClusterState) -> PartitionObserved:
    """Name the controller's own stall as the cause of a removal by it, where the session ended by that.

    Whether the broker died meanwhile, too, only its return can show: until then, the cause is ambiguous.
    """
    since, until = cluster.controller_silent_since, cluster.controller_silent_until
    if observed.cause is not Cause.FENCED or since is None or until is None:
        return observed
    times = ConfiguredTimes().configured(cluster.replica_lag_time_max_ms, cluster.broker_session_timeout_ms)
    if not times.is_of_stall(since, until, observed.occurred_not_after):
        return observed
    candidates = (Cause.CONTROLLER_STALL, *(observed.candidates or (Cause.FENCED,)))
    return replace(observed, cause=Cause.CONTROLLER_STALL, evidence=Evidence.AMBIGUOUS, candidates=candidates)


def _last_observed(
    cluster: ClusterState, before: PartitionState, observed: PartitionObserved, missed: int
) -> Micros | None:
    """Return the time at which an observation gap of a partition began; None if it was observed all the time.

    With partition epochs, missed changes prove the gap. Without them, the first full report after it does: between two
    polls elections are missed without a gap.
    """
    if missed and observed.partition_epoch is not None:
        return cluster.primary_watermark if cluster.sight_until is None else cluster.sight_until
    return cluster.sight_until if None in (before.partition_epoch, observed.partition_epoch) else None


def _is_gap_of_all(cluster: ClusterState) -> bool:
    """Return whether the observation gap that a full report closes was recorded as one of every partition."""
    begin, end = cluster.sight_until, cluster.observed_since
    return begin is not None and end is not None and begin < end


def _since_last_observation(observed: AnyObservation, draft: Draft) -> AnyObservation:
    """Widen the time window of an observation that ends a gap: the change can have occurred at any time in the gap."""
    gap_begin = draft.cluster(observed).sight_until
    if gap_begin is None:
        return observed
    return replace(observed, occurred_not_before=min(gap_begin, observed.occurred_not_before))


def vanished(before: PartitionState, observed: Observation, evidence: Evidence, draft: Draft) -> None:
    """Replace a partition that does not exist any more by its tombstone."""
    observed = _since_last_observation(observed, draft)
    offset = getattr(observed, "metadata_offset", None)
    after = partitions.deleted(partitions.settled(before, draft.cluster(observed)), observed.occurred_not_after, offset)
    after = after._replace(change_number=before.change_number + 1, **_cause_columns(Cause.DELETED, evidence, observed))
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=Cause.DELETED,
            evidence=evidence,
            events=with_event_ids(_identity(after), iter([(EventKind.TOPIC_DELETED, None, None)])),
            before=before,
            after=after,
        )
    )


def revised(before: PartitionState, observed: CauseRevised, draft: Draft) -> None:
    """Record that the cause of an earlier step is proven; counts by cause do not change."""
    earlier = before.last_cause if before.last_cause_offset == observed.revised_offset else "another cause"
    after = before._replace(
        change_number=before.change_number + 1,
        metadata_offset=observed.metadata_offset,
        metadata_index=observed.metadata_index,
    )
    if before.last_cause_offset == observed.revised_offset:
        after = after._replace(last_cause=observed.cause, last_evidence=observed.evidence)
    detail = f"the change at offset {observed.revised_offset}: {earlier} to {observed.cause}"
    events: list[PendingEvent] = [(EventKind.CAUSE_REVISED, observed.broker, detail)]
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=observed.cause,
            evidence=observed.evidence,
            events=with_event_ids(_identity(after), iter(events)),
            before=before,
            after=after,
        )
    )


def _cause_columns(cause: Cause | None, evidence: Evidence | None, observed: Observation) -> dict[str, Any]:
    """Return the columns about the last ISR or leader change."""
    offset = getattr(observed, "metadata_offset", None)
    return {"last_cause": cause, "last_evidence": evidence, "last_cause_offset": offset}


def reconfigured(topic_id: TopicId, observed: ConfigObserved, draft: Draft) -> None:
    """Apply a new configuration to the partitions of a topic; where it stays the same, there is no change."""
    for before in draft.partitions_of(observed.cluster_id, topic_id):
        config = draft.topic_config(before.cluster_id, before.topic)
        if before.is_deleted or partitions.is_configured(before, config):
            continue
        base = partitions.settled(before, draft.cluster(observed))
        at = _effective_from(before, observed, draft)
        base = partitions.with_minimum_until(base, draft.cluster(observed).sight_until, at)
        after = partitions.with_health(base, config, at)
        is_first_minimum = before.min_isr_configured is None and before.is_diskless == after.is_diskless
        after = after._replace(change_number=before.change_number + 1, changed_at=before.changed_at)
        draft.put_partition(after)
        draft.changes.append(
            Change(
                subject=Subject.PARTITION,
                observation=observed,
                cause=Cause.CONFIG,
                evidence=Evidence.PROVEN,
                is_baseline=is_first_minimum,
                events=()
                if is_first_minimum
                else with_event_ids(_identity(after), events_between(before, after, IsrStep(), Cause.CONFIG, 0)),
                before=before,
                after=after,
            )
        )


def _effective_from(before: PartitionState, observed: ConfigObserved, draft: Draft) -> Micros:
    """Return the time from which a minimum counts: within the last change and the primary source's watermark.

    A broker may report its configuration minutes after that watermark, or a value from before the last change. A value
    in the metadata log is an observation of the primary source itself, so the watermark moves to its time.
    """
    watermark = draft.cluster(observed).primary_watermark
    is_described = observed.origin is ConfigOrigin.DESCRIBE
    at = min(observed.occurred_not_after, watermark) if is_described and watermark else observed.occurred_not_after
    return at if before.changed_at is None else max(at, before.changed_at)


def _identity(after: PartitionState) -> str:
    return f"{after.cluster_id}/{after.topic_id}/{after.partition}/{after.change_number}"
