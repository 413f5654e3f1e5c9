"""Samples of settings as brokers apply them: of topics and of brokers, and the features that these support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from streaming.contracts.columns import Long
from streaming.contracts.identifiers import BrokerId, TopicId
from streaming.contracts.observations import MIN_ISR, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettingsObserved(Sample):
    """The settings of a topic that durability and throttles depend on (DescribeConfigs). None: not reported.

    ``broker`` was asked. What topics leave to the brokers is None where these disagree. ``replication_factor`` is that
    of its smallest partition.
    """

    kind: ClassVar[str] = "topic_settings"
    format: ClassVar[int] = 4

    broker: BrokerId
    topic_id: Annotated[TopicId, "topic id, as Kafka's tools print it"]
    topic: Annotated[str, "topic name"]
    partition_count: Annotated[int, "partitions of the topic"]
    replication_factor: Annotated[int, "replicas of its smallest partition, those being added included"]
    min_isr: Annotated[int | None, "min.insync.replicas"] = None
    allows_unclean_election: Annotated[bool | None, "unclean.leader.election.enable"] = None
    cleanup_policy: Annotated[str | None, "cleanup.policy"] = None
    leader_throttled_replicas: Annotated[str | None, "leader.replication.throttled.replicas; empty: none"] = None
    follower_throttled_replicas: Annotated[str | None, "follower.replication.throttled.replicas; empty: none"] = None
    takes_dead_letters: Annotated[
        bool | None, "errors.deadletterqueue.group.enable: share groups put what they reject here (Kafka 4.4)"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettingsObserved(Sample):
    """The settings of a broker that matter to replication (DescribeConfigs). None: not set, or not reported.

    The rates are bytes per second (KIP-73).
    """

    kind: ClassVar[str] = "broker_settings"
    format: ClassVar[int] = 4

    broker: Annotated[BrokerId, "broker id"]
    leader_throttled_rate: Annotated[
        Long | None, "leader.replication.throttled.rate, bytes per second; null: no limit"
    ] = None
    follower_throttled_rate: Annotated[Long | None, "follower.replication.throttled.rate, in the same way"] = None
    replica_lag_time_max_ms: Annotated[Long | None, "replica.lag.time.max.ms"] = None
    broker_session_timeout_ms: Annotated[Long | None, "broker.session.timeout.ms"] = None
    allows_unclean_election: Annotated[bool | None, "unclean.leader.election.enable, for topics that do not set it"] = (
        None
    )
    min_isr: Annotated[int | None, "min.insync.replicas, for topics that do not set it"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureObserved(Sample):
    """The highest level of a feature that a broker supports, and the level that the cluster uses (KIP-584)."""

    kind: ClassVar[str] = "broker_feature"
    format: ClassVar[int] = 4

    broker: Annotated[BrokerId, "broker id"]
    feature: Annotated[str, "name, such as metadata.version"]
    supported_level: Annotated[int, "highest level that the broker supports"]
    finalized_level: Annotated[int, "level that the cluster uses; 0: off"]


# Settings that every broker should have alike, and that may differ, as each reads them from its own file.


UNCLEAN: Final = "unclean.leader.election.enable"
ALIKE: Final = {
    MIN_ISR: "min_isr",
    UNCLEAN: "allows_unclean_election",
    "replica.lag.time.max.ms": "replica_lag_time_max_ms",
    "broker.session.timeout.ms": "broker_session_timeout_ms",
}
"""Kafka's key to the field of :class:`BrokerSettingsObserved`. The last one counts at controllers only."""


def disagreement(key: str, values: Mapping[int, object]) -> str | None:
    """Name the brokers that disagree on a setting, and their values; None if they agree, as far as they say.

    >>> disagreement("min.insync.replicas", {1: 1, 2: 2, 3: 2, 4: None})
    'brokers disagree on min.insync.replicas: 1 on broker 1, 2 on brokers 2 and 3'
    """
    brokers: dict[object, list[int]] = {}
    for broker, value in sorted(values.items()):
        if value is not None:
            brokers.setdefault(value, []).append(broker)
    if len(brokers) < 2:  # noqa: PLR2004 - one value is no disagreement
        return None
    return f"brokers disagree on {key}: {', '.join(_on(value, among) for value, among in brokers.items())}"


def disagreements(settings: Mapping[int, object]) -> Iterator[tuple[str, str]]:
    """Yield each key that brokers disagree on, with the sentence; ``settings`` have the fields of ``ALIKE``."""
    for key, field in ALIKE.items():
        if said := disagreement(key, {broker: getattr(each, field) for broker, each in settings.items()}):
            yield key, said


def _on(value: object, brokers: list[int]) -> str:
    *others, last = brokers
    among = f"brokers {', '.join(map(str, others))} and {last}" if others else f"broker {last}"
    return f"{str(value).lower()} on {among}"
