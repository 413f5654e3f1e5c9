"""Blocks: what grows with the cluster travels as one observation per topic, its partitions as parallel arrays.

A full report lists every partition although almost none has changed. In blocks it costs a fifth of the bytes, and the
bytes behind the envelope (:func:`cut_block`) show without decoding whether a topic is reported as it was before. When a
broker dies, the controller changes all of its partitions in a few record batches: these travel in blocks, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby, pairwise, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, Offset, TopicId
from streaming.contracts.observations import Observation, PartitionObserved, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# A record of the bus must stay small enough to be read as one.
PARTITIONS_PER_BLOCK: Final = 1000

_BODY: Final = b',"topic_id":'


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsBlock(Observation):
    """The state of several partitions of one topic, in the order of their numbers.

    Every ``…_by_partition`` has one value per partition. None stands for what the source does not report (epochs), or
    for what no partition of the block has (ELR, a reassignment, a recovering leader).
    """

    format: ClassVar[int] = 2
    in_snapshot: ClassVar[bool]

    metadata_offset: Offset | None = None
    topic_id: TopicId
    topic: str
    reports_reassignments: bool | None = None
    reports_elr: bool | None = None
    partitions: tuple[int, ...]
    replicas_by_partition: tuple[tuple[BrokerId, ...], ...]
    isr_by_partition: tuple[tuple[BrokerId, ...], ...]
    leader_by_partition: tuple[int, ...]
    leader_epoch_by_partition: tuple[int, ...] | None = None
    partition_epoch_by_partition: tuple[int, ...] | None = None
    elr_by_partition: tuple[tuple[BrokerId, ...], ...] | None = None
    last_known_elr_by_partition: tuple[tuple[BrokerId, ...], ...] | None = None
    adding_replicas_by_partition: tuple[tuple[BrokerId, ...], ...] | None = None
    removing_replicas_by_partition: tuple[tuple[BrokerId, ...], ...] | None = None
    leader_recovering_by_partition: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a block of no partitions, and arrays that are not parallel."""
        Observation.__post_init__(self)
        require(bool(self.topic_id) and bool(self.topic), "topic_id or topic is empty")
        numbers = self.partitions
        require(bool(numbers), "partitions is empty")
        require(numbers[0] >= 0, f"partition is negative: {numbers[0]}")
        require(all(one < after for one, after in pairwise(numbers)), "partitions are not in order")
        for name in _ARRAYS.values():
            values = getattr(self, name)
            require(values is None or len(values) == len(numbers), f"{name} has not one value per partition")
        require(all(self.replicas_by_partition), "replicas is empty")
        distinct = set(self.replicas_by_partition)  # few, also of many partitions
        require(all(len(set(each)) == len(each) for each in distinct), "replicas name a broker twice")

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each partition, in the order of ``FIELDS_IN_BLOCK``."""
        columns = (getattr(self, name) for name in _ARRAYS.values())
        filled = (
            repeat(default) if column is None else column for column, default in zip(columns, _DEFAULTS, strict=True)
        )
        return zip(self.partitions, *filled, strict=False)

    def _shared(self) -> dict[str, Any]:
        """Return the fields that the partitions have in common."""
        return {name: getattr(self, name) for name in _SHARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsObserved(PartitionsBlock):
    """The state of several partitions of one topic within a full report."""

    kind: ClassVar[str] = "partitions"
    in_snapshot: ClassVar[bool] = True

    def observation(self, row: Sequence[Any]) -> PartitionObserved:
        """Return one of the ``rows`` as the observation of one partition."""
        return PartitionObserved(**self._shared(), in_snapshot=True, **dict(zip(FIELDS_IN_BLOCK, row, strict=True)))

    def observations(self) -> Iterator[PartitionObserved]:
        """Yield the observation of each partition."""
        return map(self.observation, self.rows())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsChanged(PartitionsBlock):
    """A step of several partitions of one topic, all for the same cause, by successive records of one record batch.

    ``metadata_offset`` is that of the last of these records; the others precede it without a gap.
    """

    kind: ClassVar[str] = "partitions_changed"
    in_snapshot: ClassVar[bool] = False

    cause: Cause
    evidence: Evidence
    candidates: tuple[Cause, ...] = ()

    def __post_init__(self) -> None:
        """Refuse records without an offset, too: a poller knows no record batches."""
        PartitionsBlock.__post_init__(self)
        offset = self.metadata_offset
        require(offset is not None, "metadata_offset is missing")
        require(offset is None or offset + 1 >= len(self.partitions), f"metadata_offset is too small: {offset}")

    def observations(self) -> Iterator[PartitionObserved]:
        """Yield the observation of each partition, with the offset of its own record."""
        shared = {**self._shared(), "cause": self.cause, "evidence": self.evidence, "candidates": self.candidates}
        last = shared.pop("metadata_offset")
        for offset, row in enumerate(self.rows(), start=last + 1 - len(self.partitions)):
            own = dict(zip(FIELDS_IN_BLOCK, row, strict=True))
            yield PartitionObserved(**shared, metadata_offset=Offset(offset), **own)


_SUFFIX: Final = "_by_partition"
# Field of a partition's observation -> the array of a block.
_ARRAYS: Final = {
    name.removesuffix(_SUFFIX): name for name in PartitionsBlock.__dataclass_fields__ if name.endswith(_SUFFIX)
}
_SHARED: Final = (
    *(item.name for item in fields(Observation)),
    "metadata_offset",
    "topic_id",
    "topic",
    "reports_reassignments",
    "reports_elr",
)
FIELDS_IN_BLOCK: Final = ("partition", *_ARRAYS)
_DEFAULTS: Final = tuple(
    None if name in {"leader_epoch", "partition_epoch"} else PartitionObserved.__dataclass_fields__[name].default
    for name in _ARRAYS
)


IDENTITY_IN_BLOCK: Final = ("partition", "leader_epoch", "partition_epoch")
"""The partition's number and its epochs."""
shape_of: Final = itemgetter(*(n for n, name in enumerate(FIELDS_IN_BLOCK) if name not in IDENTITY_IN_BLOCK))
"""Reads all other values of one of the ``rows`` of a block; few different ones exist."""


def in_blocks(partitions: Iterable[PartitionObserved]) -> Iterator[PartitionsObserved]:
    """Gather the partitions of a full report, those of each topic in the order of their numbers, into blocks."""
    for _, of_topic in groupby(partitions, attrgetter("topic_id")):
        gathered = list(of_topic)
        for start in range(0, len(gathered), PARTITIONS_PER_BLOCK):
            yield block_of(gathered[start : start + PARTITIONS_PER_BLOCK])


def with_changes_in_blocks(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Gather the changes of one record batch into blocks, where several follow each other; the order stays."""
    gathered: list[PartitionObserved] = []
    for observed in observations:
        if gathered and not _goes_on(gathered[-1], observed):
            yield _changed(gathered)
            gathered = []
        if isinstance(observed, PartitionObserved) and observed.cause is not None and not observed.metadata_index:
            gathered.append(observed)
        else:
            yield observed
    if gathered:
        yield _changed(gathered)


def _goes_on(last: PartitionObserved, observed: Observation) -> bool:
    """Return whether an observation belongs to the block that ends with another."""
    return (
        isinstance(observed, PartitionObserved)
        and observed.partition > last.partition
        and observed.metadata_offset == (last.metadata_offset or 0) + 1
        and all(getattr(observed, name) == getattr(last, name) for name in _SAME_IN_CHANGES)
    )


_SAME_IN_CHANGES: Final = ("topic_id", "cause", "evidence", "candidates", "metadata_index")


def _changed(steps: Sequence[PartitionObserved]) -> Observation:
    """Return steps as one block; one alone stays as it is, and so does what only single observations can say."""
    last = steps[-1]
    if len(steps) == 1 or last.cause is None or last.evidence is None:
        return last
    shared = {**_shared_of(steps), "metadata_offset": last.metadata_offset}
    return PartitionsChanged(**shared, cause=last.cause, evidence=last.evidence, candidates=last.candidates)


def block_of(partitions: Sequence[PartitionObserved]) -> PartitionsObserved:
    """Return one block of partitions of one topic, which share an envelope, in the order of their numbers."""
    return PartitionsObserved(**_shared_of(partitions))


def _shared_of(partitions: Sequence[PartitionObserved]) -> dict[str, Any]:
    """Return the fields of a block: what the partitions share, and the arrays of the rest."""
    first = partitions[0]
    columns = {name: tuple(getattr(each, field) for each in partitions) for field, name in _ARRAYS.items()}
    defaults = dict(zip(_ARRAYS.values(), _DEFAULTS, strict=True))
    present = {
        name: values
        for name, values in columns.items()
        if name in _ALWAYS or any(value != defaults[name] for value in values)
    }
    shared = {name: getattr(first, name) for name in _SHARED if name != "sequence"}
    return {**shared, "partitions": tuple(each.partition for each in partitions), **present}


_ALWAYS: Final = frozenset({"replicas_by_partition", "isr_by_partition", "leader_by_partition"})


def cut_block(payload: bytes) -> tuple[bytes, bytes] | None:
    """Cut an encoded block into its envelope and what it says of its topic; None for anything else.

    The fields stand in the order of their class, so all that differs between two reports of the same state comes
    first. A text within the envelope cannot look like the cut: JSON escapes its quotation marks.
    """
    if not payload.startswith(_PREFIX):
        return None
    head, mark, body = payload.partition(_BODY)
    return (head, body) if mark else None


_PREFIX: Final = f'{{"v":{PartitionsObserved.format},"kind":"{PartitionsObserved.kind}",'.encode()
