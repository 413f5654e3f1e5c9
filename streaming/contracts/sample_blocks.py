"""Blocks of samples: what one broker reported at one moment travels as one observation, with parallel arrays.

A round of samples has every replica of the cluster in it. As a block it says what its samples have in common once,
and it becomes columns of a table without an object per sample. Which arrays a block has, and what they may hold,
follows from the fields of its samples (:func:`arrays_of`): a new value is declared there alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, get_type_hints

from streaming.contracts.columns import may_be_none, plain_type
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import Observation, Sample, require
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    GroupObserved,
    GroupOffsetsObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
    never_negative,
)
from streaming.contracts.settings import TopicSettingsObserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A record of the bus must stay small enough to be read as one.
SAMPLES_PER_BLOCK: Final = 10_000

_ENVELOPE: Final = tuple(item.name for item in fields(Observation))
_ARRAYS: Final[dict[str, dict[str, BlockArray]]] = {}
_NAMES: Final = frozenset({"metric", "topic", "topic_id"})
"""Fields that name something: they are never empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesBlock(Sample):
    """Samples of one kind, from one broker and one moment.

    Attributes:
        sample: their kind.
        reporter: the field of a sample that names ``broker``; empty if each is of a broker of its own.
        by_topic: the fields of a sample that stand once for consecutive samples of a topic.
        may_be_empty: a block without samples says that there are none (any more).
        is_always_empty: samples of this kind travel singly.
        kept_by: the field of a sample by which a block names samples that it says nothing about; empty if it cannot.
        arrays: by field of a sample, one value per sample. What is reported of none of them is left out.
    """

    format: ClassVar[int] = 2
    sample: ClassVar[type[Observation]]
    reporter: ClassVar[str] = "broker"
    by_topic: ClassVar[tuple[str, ...]] = ()
    may_be_empty: ClassVar[bool] = False
    is_always_empty: ClassVar[bool] = False
    kept_by: ClassVar[str] = ""

    broker: BrokerId
    arrays: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a block without samples, unless that is an answer, and arrays that its kind cannot have."""
        Observation.__post_init__(self)
        count, possible = len(self), arrays_of(type(self))
        require(count > 0 or self.may_be_empty, "there are no samples")
        odd = self.arrays.keys() - possible.keys()
        require(not odd, f"{self.kind} has none of {odd}")
        for name, array in possible.items():
            values = self.arrays.get(name)
            if values is None:
                require(array.is_optional or not self.arrays, f"{array.name} is missing")
                continue
            require(name in self.by_topic or len(values) == count, f"{array.name} has not one value per sample")
            require(name not in _NAMES or all(values), f"{name} is empty")
            if array.is_never_negative:
                require(_least(values) >= 0, f"{name} is negative")

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(next((values for name, values in self.arrays.items() if name not in self.by_topic), ()))

    def values(self) -> Mapping[str, Sequence[Any]]:
        """Return the samples as columns: field of a sample to one value per sample."""
        return self.arrays

    def shared(self) -> dict[str, Any]:
        """Return the fields that all the samples have in common."""
        shared = {name: getattr(self, name) for name in _ENVELOPE}
        return {**shared, self.reporter: self.broker} if self.reporter else shared


def _least(numbers: Sequence[Any]) -> float:
    """Return the smallest of numbers, some of which may be None; 0 of none. Most often none of thousands is None."""
    try:
        return min(numbers, default=0) or 0
    except TypeError:
        return min(filter(None, numbers), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesByTopic(SamplesBlock):
    """Samples that stand topic by topic: the arrays of ``by_topic`` have one value per topic.

    ``samples_by_topic`` says how many of the samples are of each.
    """

    samples_by_topic: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a topic without samples, too, and numbers of them that do not add up."""
        SamplesBlock.__post_init__(self)
        counts = self.samples_by_topic
        require(all(count > 0 for count in counts), "a topic has no samples")
        require(sum(counts) == len(self), "samples_by_topic do not add up to the samples")
        for name in self.by_topic:
            require(len(self.arrays.get(name, counts)) == len(counts), f"{name}_by_topic has not one value per topic")

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the samples as columns."""
        counts, in_runs = self.samples_by_topic, self.arrays.keys() & self.by_topic
        repeated = {name: [*chain.from_iterable(map(repeat, self.arrays[name], counts))] for name in in_runs}
        return {**self.arrays, **repeated}


class BlockArray(NamedTuple):
    """An array of blocks of one kind.

    Attributes:
        name: in a record.
        plain: the type of the array.
        is_optional: it may be left out, and its values may be None.
        is_never_negative: its values are numbers that cannot be negative.
    """

    name: str
    plain: str
    is_optional: bool
    is_never_negative: bool


def arrays_of(block: type[SamplesBlock]) -> dict[str, BlockArray]:
    """Return the arrays that blocks of one kind have, by field of a sample: all that samples need not share."""
    if block.kind not in _ARRAYS:
        _ARRAYS[block.kind] = {} if block.is_always_empty else _derived(block)
    return _ARRAYS[block.kind]


def _derived(block: type[SamplesBlock]) -> dict[str, BlockArray]:
    hints, positive = get_type_hints(block.sample, include_extras=True), never_negative(block.sample)
    return {
        item.name: BlockArray(
            f"{item.name}_by_{'topic' if item.name in block.by_topic else 'sample'}",
            f"{plain_type(hints[item.name])}[]".replace("timestamp", "long"),
            may_be_none(hints[item.name]),
            item.name in positive,
        )
        for item in fields(block.sample)
        if item.name not in _ENVELOPE and item.name != block.reporter
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOffsetsObserved(SamplesByTopic):
    """Log positions of the replicas on one broker."""

    kind: ClassVar[str] = "broker_offsets"
    sample: ClassVar[type[Observation]] = ReplicaOffsetsObserved
    by_topic: ClassVar[tuple[str, ...]] = ("topic_id", "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetricsObserved(SamplesBlock):
    """Values of one broker's own metrics."""

    kind: ClassVar[str] = "broker_metrics"
    sample: ClassVar[type[Observation]] = BrokerMetricObserved


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpeedsObserved(SamplesBlock):
    """A round: every broker that responded. ``broker`` responded last."""

    kind: ClassVar[str] = "broker_speeds"
    format: ClassVar[int] = 4
    sample: ClassVar[type[Observation]] = BrokerSpeedObserved
    reporter: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsReported(SamplesBlock):
    """A broker has reported all its transactions of this moment, singly: what it reported before is over."""

    kind: ClassVar[str] = "transactions_reported"
    format: ClassVar[int] = 4
    sample: ClassVar[type[Observation]] = TransactionObserved
    reporter: ClassVar[str] = "reporter"
    may_be_empty: ClassVar[bool] = True
    is_always_empty: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupsObserved(SamplesBlock):
    """Groups, from the broker that coordinates them: all that it has at this moment, in one block or more.

    ``kept`` are groups about which it says nothing (any more): what is missing of them is not gone.
    """

    kind: ClassVar[str] = "broker_groups"
    format: ClassVar[int] = 4
    sample: ClassVar[type[Observation]] = GroupObserved
    reporter: ClassVar[str] = "coordinator"
    may_be_empty: ClassVar[bool] = True
    kept_by: ClassVar[str] = "group"

    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupOffsetsObserved(SamplesByTopic):
    """Committed offsets of the groups of one coordinator, in the same way: group by group, then topic by topic.

    Three hundred groups in a hundred partitions each are 30,000 samples a round.

    ``ended`` are groups of which the coordinator has less than before, or nothing: what the blocks of its answer leave
    out of them is gone. It stands in the last block.
    """

    kind: ClassVar[str] = "broker_group_offsets"
    format: ClassVar[int] = 4
    sample: ClassVar[type[Observation]] = GroupOffsetsObserved
    reporter: ClassVar[str] = "coordinator"
    by_topic: ClassVar[tuple[str, ...]] = (
        *("group", "group_protocol", "group_state", "members", "topic_id", "topic"),
        "positions_at",
    )
    may_be_empty: ClassVar[bool] = True
    kept_by: ClassVar[str] = "group"

    kept: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSettingsObserved(SamplesBlock):
    """The settings of several topics."""

    kind: ClassVar[str] = "topics_settings"
    format: ClassVar[int] = 4
    sample: ClassVar[type[Observation]] = TopicSettingsObserved


def speeds_in_block(speeds: Sequence[BrokerSpeedObserved]) -> BrokerSpeedsObserved:
    """Gather the brokers of one round, which have one envelope; the last of them responded last."""
    last = speeds[-1]
    return BrokerSpeedsObserved(**_envelope_of(last), broker=last.broker, arrays=_arrays(BrokerSpeedsObserved, speeds))


def offsets_in_blocks(samples: Iterable[ReplicaOffsetsObserved]) -> Iterator[BrokerOffsetsObserved]:
    """Gather log positions of one moment, with one envelope, into blocks: of one broker each."""
    in_order = sorted(samples, key=attrgetter("broker", "topic_id", "partition"))
    for broker, together in groupby(in_order, attrgetter("broker")):
        gathered = list(together)
        for start in range(0, len(gathered), SAMPLES_PER_BLOCK):
            some = gathered[start : start + SAMPLES_PER_BLOCK]
            of_topics = [list(same) for _, same in groupby(some, attrgetter("topic_id", "topic"))]
            by_topic = _arrays(BrokerOffsetsObserved, [same[0] for same in of_topics])
            yield BrokerOffsetsObserved(
                **_envelope_of(some[0]),
                broker=broker,
                samples_by_topic=tuple(map(len, of_topics)),
                arrays={
                    **_arrays(BrokerOffsetsObserved, some),
                    **{name: by_topic[name] for name in BrokerOffsetsObserved.by_topic},
                },
            )


def _envelope_of(sample: Observation) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in _ENVELOPE}


def _arrays(block: type[SamplesBlock], samples: Sequence[Observation]) -> dict[str, tuple[Any, ...]]:
    return reported({name: tuple(getattr(each, name) for each in samples) for name in arrays_of(block)})


def reported(arrays: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Leave out the arrays that have nothing but None."""
    return {name: values for name, values in arrays.items() if any(value is not None for value in values)}
