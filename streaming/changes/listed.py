"""Partitions that a block of the first full report lists: of a million, few differ in more than number and epochs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streaming.contracts.blocks import IDENTITY_IN_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming.contracts.blocks import PartitionsObserved
    from streaming.contracts.state import PartitionState

_UNLIKE_FIRST: Final = 1  # the number of any partition but the first one, which stands for its topic


class ListedPartitions(Mapping[int, "PartitionState"]):
    """The partitions of a topic by number, as one block listed them. Each is made when something asks for it.

    Attributes:
        identities: the values of ``IDENTITY_IN_BLOCK``, each for all partitions.
        shapes: for each partition a state that it equals but for its topic and those.
    """

    __slots__ = ("_topic", "identities", "shapes")

    def __init__(self, block: PartitionsObserved, shapes: Sequence[PartitionState]) -> None:
        unreported = (None,) * len(block.partitions)
        self._topic = block.topic_id, block.topic
        self.identities: tuple[tuple[int | None, ...], ...] = (
            block.partitions,
            block.leader_epoch_by_partition or unreported,
            block.partition_epoch_by_partition or unreported,
        )
        self.shapes = tuple(shapes)

    def __getitem__(self, number: int) -> PartitionState:
        """Make the state of a partition."""
        numbers, *_ = self.identities
        place = bisect_left(numbers, number)  # type: ignore[type-var]  # numbers are never None
        if numbers[place : place + 1] != (number,):
            raise KeyError(number)
        identity = zip(IDENTITY_IN_BLOCK, (values[place] for values in self.identities), strict=True)
        topic_id, topic = self._topic
        return self.shapes[place]._replace(topic_id=topic_id, topic=topic, **dict(identity))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the partitions, in their order."""
        return iter(self.identities[0])  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return how many partitions there are."""
        return len(self.shapes)

    def are_of(self, block: PartitionsObserved) -> bool:
        """Return whether it is this block that has listed them, not another one that says the same."""
        return self.identities[0] is block.partitions


def counted(topics: Iterable[ListedPartitions]) -> Iterator[tuple[PartitionState, int]]:
    """Yield states and how many partitions of some topics are counted like each of them."""
    shapes: dict[int, PartitionState] = {}
    all_of, first_of = Counter[int](), Counter[int]()
    for partitions in topics:
        places = list(map(id, partitions.shapes))
        shapes.update(zip(places, partitions.shapes, strict=True))
        all_of.update(places)
        first_of.update(places[:1] if 0 in partitions else ())
    for place, shape in shapes.items():
        for number, count in ((0, first_of[place]), (_UNLIKE_FIRST, all_of[place] - first_of[place])):
            if count:
                yield shape._replace(partition=number), count
