"""Blocks of samples: what one broker reported at one moment travels as one observation, with parallel arrays.

A round of samples has every replica of the cluster in it. As a block it says what its samples have in common once,
and it becomes columns of a table without an object per sample.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streaming.contracts.identifiers import BrokerId, Offset, TopicId
from streaming.contracts.observations import Channel, Observation, require
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# A record of the bus must stay small enough to be read as one.
SAMPLES_PER_BLOCK: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesBlock(Observation):
    """Samples of one kind, from one broker and one moment.

    Every ``…_by_sample`` has one value per sample; None stands for what was not reported of any of them.
    """

    format: ClassVar[int] = 2
    sample: ClassVar[type[Observation]]
    may_be_empty: ClassVar[bool] = False

    broker: BrokerId

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(next(iter(self._arrays().values())))

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the samples as columns: field of a sample to one value per sample."""
        return self._arrays()

    def shared(self) -> dict[str, Any]:
        """Return the fields that all the samples have in common."""
        return {name: getattr(self, name) for name in (*_ENVELOPE, "broker")}

    def _arrays(self) -> dict[str, Sequence[Any]]:
        """Return what is reported of every sample."""
        names = (item.name for item in fields(self) if item.name.endswith(_SUFFIX))
        return {name.removesuffix(_SUFFIX): value for name in names if (value := getattr(self, name)) is not None}

    def _require_parallel(self, count: int) -> None:
        """Refuse a block without samples, unless that is an answer, and arrays that are not parallel."""
        require(count > 0 or self.may_be_empty, "there are no samples")
        for name, values in self._arrays().items():
            require(len(values) == count, f"{name}{_SUFFIX} has not one value per sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOffsetsObserved(SamplesBlock):
    """Log positions of the replicas on one broker, topic by topic; see :class:`samples.ReplicaOffsetsObserved`.

    ``replica_counts`` says how many of the samples are of each topic.
    """

    kind: ClassVar[str] = "broker_offsets"
    channel: ClassVar[Channel] = Channel.OFFSETS
    sample: ClassVar[type[Observation]] = ReplicaOffsetsObserved

    topic_ids: tuple[TopicId, ...]
    topics: tuple[str, ...]
    replica_counts: tuple[int, ...]
    partition_by_sample: tuple[int, ...]
    log_start_offset_by_sample: tuple[Offset, ...] | None = None
    last_stable_offset_by_sample: tuple[Offset, ...] | None = None
    high_watermark_by_sample: tuple[Offset, ...] | None = None
    log_end_offset_by_sample: tuple[Offset, ...] | None = None
    leader_log_end_offset_by_sample: tuple[Offset, ...] | None = None
    size_bytes_by_sample: tuple[Offset, ...] | None = None
    log_dir_by_sample: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not parallel, and negative offsets and sizes."""
        Observation.__post_init__(self)
        require(len(self.topic_ids) == len(self.topics) == len(self.replica_counts), "topics differ in length")
        require(all(self.topic_ids) and all(self.topics), "topic_id or topic is empty")
        require(all(count > 0 for count in self.replica_counts), "a topic has no samples")
        self._require_parallel(sum(self.replica_counts))
        for name, values in self._arrays().items():
            require(name == "log_dir" or min(values) >= 0, f"{name} is negative")

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the samples as columns."""
        return {
            "topic_id": [*chain.from_iterable(map(repeat, self.topic_ids, self.replica_counts))],
            "topic": [*chain.from_iterable(map(repeat, self.topics, self.replica_counts))],
            **self._arrays(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetricsObserved(SamplesBlock):
    """Values of one broker's own metrics; see :class:`samples.BrokerMetricObserved`."""

    kind: ClassVar[str] = "broker_metrics"
    channel: ClassVar[Channel] = Channel.METRICS
    sample: ClassVar[type[Observation]] = BrokerMetricObserved

    metric_by_sample: tuple[str, ...]
    metric_value_by_sample: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is not parallel, and a metric without a name."""
        Observation.__post_init__(self)
        self._require_parallel(len(self.metric_by_sample))
        require(all(self.metric_by_sample), "metric is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpeedsObserved(SamplesBlock):
    """A round: every broker that responded; see :class:`samples.BrokerSpeedObserved`. ``broker`` responded last.

    ``append_micros_of_agents`` are the times of appends of ``agents_of_brokers``, those of which an agent gives one.
    """

    kind: ClassVar[str] = "broker_speeds"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS
    sample: ClassVar[type[Observation]] = BrokerSpeedObserved

    broker_by_sample: tuple[int, ...]
    response_micros_by_sample: tuple[int, ...]
    slowest_response_micros_by_sample: tuple[int, ...]
    followed_leaders_by_sample: tuple[int, ...]
    followed_leaders_behind_by_sample: tuple[int, ...]
    followers_by_sample: tuple[int, ...]
    followers_behind_by_sample: tuple[int, ...]
    replicas_behind_by_sample: tuple[int, ...]
    replicas_out_of_isr_by_sample: tuple[int, ...]
    agents_of_brokers: tuple[int, ...] = ()
    append_micros_of_agents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not parallel, and negative times and counts."""
        Observation.__post_init__(self)
        self._require_parallel(len(self.broker_by_sample))
        require(len(self.agents_of_brokers) == len(self.append_micros_of_agents), "agents have not one time each")
        for name, values in {**self._arrays(), "append_micros": self.append_micros_of_agents}.items():
            require(min(values, default=0) >= 0, f"{name} is negative")

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the samples as columns."""
        append_micros = dict(zip(self.agents_of_brokers, self.append_micros_of_agents, strict=True))
        return {**self._arrays(), "append_micros": [append_micros.get(broker) for broker in self.broker_by_sample]}

    def shared(self) -> dict[str, Any]:
        """Return the fields that all the samples have in common: each is of a broker of its own."""
        return {name: value for name, value in SamplesBlock.shared(self).items() if name != "broker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsReported(SamplesBlock):
    """A broker has reported all its transactions of this moment, singly: what it reported before is over.

    A block without samples. See :class:`samples.TransactionObserved`.
    """

    kind: ClassVar[str] = "transactions_reported"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS
    sample: ClassVar[type[Observation]] = TransactionObserved
    may_be_empty: ClassVar[bool] = True

    def __len__(self) -> int:
        """Return that there are none."""
        return 0

    def shared(self) -> dict[str, Any]:
        """Return the fields that samples would have in common."""
        shared = SamplesBlock.shared(self)
        shared["reporter"] = shared.pop("broker")
        return shared


def speeds_in_block(speeds: Sequence[BrokerSpeedObserved]) -> BrokerSpeedsObserved:
    """Gather the brokers of one round, which have one envelope; the last of them responded last."""
    names = [item.name.removesuffix(_SUFFIX) for item in fields(BrokerSpeedsObserved) if item.name.endswith(_SUFFIX)]
    arrays: Mapping[str, Any] = {f"{name}{_SUFFIX}": tuple(getattr(each, name) for each in speeds) for name in names}
    append_micros = {each.broker: each.append_micros for each in speeds if each.append_micros is not None}
    return BrokerSpeedsObserved(
        **{name: getattr(speeds[-1], name) for name in (*_ENVELOPE, "broker")},
        **arrays,
        agents_of_brokers=tuple(append_micros),
        append_micros_of_agents=tuple(append_micros.values()),
    )


_SUFFIX: Final = "_by_sample"
_ENVELOPE: Final = tuple(item.name for item in fields(Observation))
_POSITIONS: Final = tuple(
    item.name.removesuffix(_SUFFIX)
    for item in fields(BrokerOffsetsObserved)
    if item.name.endswith(_SUFFIX) and item.name != "partition_by_sample"
)


def offsets_in_blocks(samples: Iterable[ReplicaOffsetsObserved]) -> Iterator[BrokerOffsetsObserved]:
    """Gather log positions of one moment, with one envelope, into blocks: one per broker and kind of report."""
    in_order = sorted(samples, key=lambda each: (each.broker, _reported(each), each.topic_id, each.partition))
    for _, together in groupby(in_order, lambda each: (each.broker, _reported(each))):
        gathered = list(together)
        for start in range(0, len(gathered), SAMPLES_PER_BLOCK):
            yield _offsets_block(gathered[start : start + SAMPLES_PER_BLOCK])


def _reported(sample: ReplicaOffsetsObserved) -> tuple[bool, ...]:
    """Return which positions are reported: those of a block are all reported, or all not."""
    return tuple(getattr(sample, name) is not None for name in _POSITIONS)


def _offsets_block(samples: Sequence[ReplicaOffsetsObserved]) -> BrokerOffsetsObserved:
    first = samples[0]
    topics = [(key, sum(1 for _ in same)) for key, same in groupby(samples, attrgetter("topic_id", "topic"))]
    arrays: Mapping[str, Any] = {
        f"{name}{_SUFFIX}": tuple(getattr(each, name) for each in samples)
        for name in ("partition", *_POSITIONS)
        if getattr(first, name) is not None
    }
    return BrokerOffsetsObserved(
        **{name: getattr(first, name) for name in (*_ENVELOPE, "broker")},
        topic_ids=tuple(topic_id for (topic_id, _), _ in topics),
        topics=tuple(topic for (_, topic), _ in topics),
        replica_counts=tuple(count for _, count in topics),
        **arrays,
    )
