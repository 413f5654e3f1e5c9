"""Samples of settings as brokers apply them: of topics and of brokers, and the features that these support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streaming.contracts.identifiers import BrokerId, TopicId
from streaming.contracts.observations import Channel, Observation, require
from streaming.contracts.sample_blocks import SamplesBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettingsObserved(Observation):
    """The settings of a topic that durability and throttles depend on (DescribeConfigs). None: not reported.

    ``broker`` was asked; any other would say the same. ``replication_factor`` is that of its smallest partition.
    """

    kind: ClassVar[str] = "topic_settings"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS

    broker: BrokerId
    topic_id: TopicId
    topic: str
    partition_count: int
    replication_factor: int
    min_isr: int | None = None
    allows_unclean_election: bool | None = None
    cleanup_policy: str | None = None
    leader_throttled_replicas: str | None = None
    follower_throttled_replicas: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSettingsObserved(SamplesBlock):
    """The settings of several topics; see :class:`TopicSettingsObserved`."""

    kind: ClassVar[str] = "topics_settings"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS
    sample: ClassVar[type[Observation]] = TopicSettingsObserved

    topic_id_by_sample: tuple[TopicId, ...]
    topic_by_sample: tuple[str, ...]
    partition_count_by_sample: tuple[int, ...]
    replication_factor_by_sample: tuple[int, ...]
    min_isr_by_sample: tuple[int, ...] | None = None
    allows_unclean_election_by_sample: tuple[bool, ...] | None = None
    cleanup_policy_by_sample: tuple[str, ...] | None = None
    leader_throttled_replicas_by_sample: tuple[str, ...] | None = None
    follower_throttled_replicas_by_sample: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not parallel."""
        Observation.__post_init__(self)
        self._require_parallel(len(self.topic_id_by_sample))
        require(all(self.topic_id_by_sample) and all(self.topic_by_sample), "topic_id or topic is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettingsObserved(Observation):
    """The settings of a broker that matter to replication (DescribeConfigs). None: not set, or not reported.

    The rates are bytes per second (KIP-73).
    """

    kind: ClassVar[str] = "broker_settings"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS

    broker: BrokerId
    leader_throttled_rate: int | None = None
    follower_throttled_rate: int | None = None
    replica_lag_time_max_ms: int | None = None
    broker_session_timeout_ms: int | None = None
    allows_unclean_election: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureObserved(Observation):
    """The highest level of a feature that a broker supports, and the level that the cluster uses (KIP-584)."""

    kind: ClassVar[str] = "broker_feature"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS

    broker: BrokerId
    feature: str
    supported_level: int
    finalized_level: int
