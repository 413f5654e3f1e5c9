"""Unsafe settings, from the newest samples: durability of topics, throttles, versions; worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.answers.answer import Row, Sentence
from exporters.answers.subject import OF_SAMPLES, ClusterSubject, Inquiry, NameFilter
from exporters.read_model.sampled_settings import feature_levels, throttles_left
from exporters.read_model.times import SECOND
from streaming.contracts.durability import WORST_FIRST, TopicDurability, Weakness, is_in_one_rack, versions_of
from streaming.contracts.health import replication_factor
from streaming.contracts.observations import MIN_ISR
from streaming.contracts.records import METADATA_VERSION
from streaming.contracts.registrations import Registration, blockers, blocks, unblocked_by
from streaming.contracts.sample_tables import BROKER_FEATURES, BROKER_SETTINGS, TOPIC_SETTINGS
from streaming.contracts.settings import UNCLEAN, disagreements
from streaming.contracts.words import brokers_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporters.read_model.cluster_samples import BrokerFeatureRow, BrokerSettingsRow, TopicSettingsRow
    from exporters.read_model.snapshot import ClusterSnapshot

THROTTLE: Final = "throttle_left_behind"
MIXED_VERSIONS: Final = "mixed_versions"
UNFINISHED_UPGRADE: Final = "unfinished_upgrade"
DISAGREEMENT: Final = "brokers_disagree"
_LISTED: Final = 3


class SampledSettings(NamedTuple):
    """The samples of one cluster."""

    topics: list[TopicSettingsRow]
    brokers: list[BrokerSettingsRow]
    features: list[BrokerFeatureRow]


class UnsafeSetting(NamedTuple):
    """Something that is wrong with settings.

    Attributes:
        finding: which rule found it.
        topic: it is about; None if it is about a broker, or the cluster.
        broker: it is about; None if it is about a topic, or the cluster.
        reason: what it means.
        fix: how to fix it.
        at: when its settings were sampled, UTC microseconds.
    """

    finding: str
    topic: str | None
    broker: int | None
    reason: str
    fix: str
    at: int

    @property
    def subject(self) -> str:
        """Subject of the row."""
        return self.topic or ("cluster" if self.broker is None else f"broker {self.broker}")


def setting_rows(asked: Inquiry) -> Iterator[Row]:
    """Return a row for each finding."""
    for cluster, _ in asked.clusters:
        for each in findings(cluster, _sampled(asked, cluster)):
            yield {
                "cluster_id": cluster.cluster.cluster_id,
                "cluster": cluster.name,
                "subject": each.subject,
                **{name: getattr(each, name) for name in _OF_FINDING},
                OF_SAMPLES: max(0, asked.now - each.at) / SECOND,
            }


def _sampled(asked: Inquiry, cluster: ClusterSnapshot) -> SampledSettings:
    return SampledSettings(*([*asked.sampled(cluster, table)] for table in _SAMPLED))


def said_of_settings(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say of which cluster there are no samples; or that nothing is wrong."""
    blind = [cluster for cluster, _ in asked.clusters if not any(_sampled(asked, cluster))]
    if not asked.clusters:
        yield Sentence(asked.no_cluster)
    for cluster in blind:
        yield asked.without_samples(
            TOPIC_SETTINGS, f"settings of cluster {cluster.name}", "the collector asks every collect.config_interval"
        )
    yield from asked.said_of_age(TOPIC_SETTINGS, "settings", rows)
    if not rows and len(blind) < len(asked.clusters):
        yield Sentence("nothing is wrong with the settings")


def findings(cluster: ClusterSnapshot, settings: SampledSettings) -> list[UnsafeSetting]:
    """Return what is wrong with the settings of a cluster: with topics, worst first; then throttles, then versions."""
    weak = [each for row in settings.topics for each in _of_topic(cluster, row)]
    weak.sort(key=lambda each: (WORST_FIRST.index(Weakness(each.finding)), each.topic))
    return [*weak, *_disputed(settings), *_throttles(cluster, settings), *_versions(cluster, settings)]


def _of_topic(cluster: ClusterSnapshot, row: TopicSettingsRow) -> Iterator[UnsafeSetting]:
    """Judge a topic that still exists and is not diskless."""
    topic = cluster.topics.get(row.topic_id)
    partitions = [] if topic is None else [*topic.partitions.values()]
    if not partitions or any(partition.is_diskless for partition in partitions):
        return
    racks = {number: broker.rack for number, broker in cluster.brokers.items() if broker.is_registered}
    durability = TopicDurability(
        topic=row.topic,
        replication_factor=min(replication_factor(each.replicas, each.adding_replicas) for each in partitions),
        min_isr=row.min_isr,
        allows_unclean_election=row.allows_unclean_election,
        cleanup_policy=row.cleanup_policy,
        is_in_one_rack=any(is_in_one_rack(each.replicas, racks) for each in partitions),
    )
    for weakness in durability.weaknesses():
        reason, fix = durability.reason(weakness), durability.fix(weakness)
        yield UnsafeSetting(weakness.value, row.topic, None, reason, fix, row.collected_at)


def _disputed(settings: SampledSettings) -> Iterator[UnsafeSetting]:
    """Name what brokers disagree on."""
    at = max((row.collected_at for row in settings.brokers), default=0)
    for key, said in disagreements({row.broker: row for row in settings.brokers}):
        yield UnsafeSetting(DISAGREEMENT, None, None, f"{said}; {_COUNTS[key]}", _FIX_ALIKE.format(key=key), at)


def _throttles(cluster: ClusterSnapshot, settings: SampledSettings) -> Iterator[UnsafeSetting]:
    at = {row.topic: row.collected_at for row in settings.topics}
    at_broker = {row.broker: row.collected_at for row in settings.brokers}
    left = throttles_left(cluster, settings.topics, settings.brokers)
    for topic, brokers in left.topics.items():
        limit = f"{brokers_in_words(brokers)} limit{'s' if len(brokers) == 1 else ''} its replication"
        does = limit if brokers else "it lists throttled replicas, which no broker limits"
        yield UnsafeSetting(THROTTLE, topic, None, f"{does}{_LEFT}", _FIX_TOPIC, at[topic])
    for broker, limited in left.brokers.items():
        does = (
            f"it limits the replication of {_topics(limited)}" if limited else "it has a throttle, without effect now"
        )
        yield UnsafeSetting(THROTTLE, None, broker, f"{does}{_LEFT}", _FIX_BROKER, at_broker[broker])


def _versions(cluster: ClusterSnapshot, settings: SampledSettings) -> Iterator[UnsafeSetting]:
    features = feature_levels(settings.features)
    versions, at = versions_of(features), max((row.collected_at for row in settings.features), default=0)
    if versions.mixed:
        behind = sorted({broker for brokers in versions.mixed.values() for broker in brokers})
        reason = f"{brokers_in_words(behind)} run{'s' if len(behind) == 1 else ''} an older version than others"
        levels = f"({', '.join(versions.mixed)})"
        yield UnsafeSetting(MIXED_VERSIONS, None, None, f"{reason} {levels}", "upgrade every broker", at)
    if versions.unused is not None:
        used = features[METADATA_VERSION].finalized
        reason = f"every broker supports metadata.version {versions.unused}, the cluster uses {used}"
        fix = "kafka-features upgrade, once it is not to go back"
        if blocking := blockers(registrations_of(cluster), versions.unused):
            reason += f"; the registration of {' and of '.join(map(blocks, blocking))} blocks the upgrade"
            fix = f"{'; '.join(unblocked_by(blocking, used))}; then {fix}"
        yield UnsafeSetting(UNFINISHED_UPGRADE, None, None, reason, fix, at)


def registrations_of(cluster: ClusterSnapshot) -> Iterator[Registration]:
    """Yield the registrations of the metadata log; none while the brokers are polled."""
    state = cluster.cluster
    for node, level in zip(state.registered_controllers or (), state.registered_levels or (), strict=True):
        is_voter = None if state.quorum_voters is None else node in state.quorum_voters
        yield Registration(node, True, level or None, is_voter)
    for broker in cluster.brokers.values():
        if broker.is_registered:
            is_up = None if broker.is_fenced is None else not broker.is_fenced
            yield Registration(broker.broker, False, broker.newest_metadata_version, is_up)


def _topics(topics: Sequence[str]) -> str:
    if len(topics) > _LISTED:
        return f"{len(topics)} topics ({', '.join(topics[:_LISTED])}, …)"
    return f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}"


_SAMPLED: Final = (TOPIC_SETTINGS, BROKER_SETTINGS, BROKER_FEATURES)
_COUNTS: Final = {
    MIN_ISR: "of a topic that does not set it, that of each leader counts",
    UNCLEAN: "that of the active controller counts",
    "replica.lag.time.max.ms": "that of each leader counts",
    "broker.session.timeout.ms": "that of the active controller counts",
}
_FIX_ALIKE: Final = "set {key} alike on every node"
_LEFT: Final = ", though nothing is being reassigned"
_FIX_TOPIC: Final = "delete leader. and follower.replication.throttled.replicas of the topic (kafka-configs)"
_FIX_BROKER: Final = "delete leader. and follower.replication.throttled.rate of the broker (kafka-configs)"


def _subjects(asked: Inquiry) -> Iterator[str]:
    """Yield what has settings."""
    yield "cluster"
    for cluster, _ in asked.clusters:
        yield from (topic.topic for topic in cluster.topics.values())
        yield from (f"broker {number}" for number in cluster.known_brokers())


_OF_FINDING: Final = ("topic", "broker", "finding", "reason", "fix")
SETTINGS: Final = ClusterSubject(
    name="settings",
    help="Show unsafe settings and how to fix them.",
    filters=(
        NameFilter(
            name="subject",
            help="Topic, 'orders-*', 'broker 3', or cluster.",
            names=lambda row: (row["subject"],),
            every_name=_subjects,
        ),
    ),
    columns=("cluster_id", "cluster", "subject", *_OF_FINDING, OF_SAMPLES),
    rows=setting_rows,
    said=said_of_settings,
)
