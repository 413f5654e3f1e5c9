"""Steps that many partitions took at once, as one sentence: what a person reads when a broker with a thousand dies."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.identifiers import Micros

_LISTED = 3


class StepShape(NamedTuple):
    """Common properties of steps of one moment that are one movement.

    Attributes:
        cause: why; with its evidence where that is not certain.
        left: brokers that left the ISR.
        joined: brokers that joined it.
        ineligible: brokers that left the ELR and are not in the ISR instead.
        created: the topic was created by this; ``deleted``: or deleted.
    """

    cause: str
    left: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    ineligible: tuple[int, ...] = ()
    created: bool = False
    deleted: bool = False


class MovedPartition(NamedTuple):
    """A step of one partition.

    Attributes:
        partition: ``orders-0``.
        shape: what it has in common with others.
        leader_moved: it changed its leader; of one that is offline that is not said.
        offline: it lost its leader and got no other.
        further: what else became of it: ``under min ISR``.
    """

    partition: str
    shape: StepShape
    leader_moved: bool = False
    offline: bool = False
    further: tuple[str, ...] = ()


class Movement(NamedTuple):
    """Steps of one moment that have the same shape; ``steps``: in order, at least one."""

    shape: StepShape
    steps: tuple[MovedPartition, ...]

    def sentence(self) -> tuple[str, str]:
        """Say it: (which partitions, what happened to them)."""
        shape, count = self.shape, len(self.steps)
        names = [step.partition for step in self.steps]
        words = [word for word, said in (("created", shape.created), ("deleted", shape.deleted)) if said]
        if shape.left:
            words.append(f"{brokers_in_words(shape.left)} left the ISR")
        if shape.joined:
            words.append(f"{brokers_in_words(shape.joined)} joined the ISR")
        if shape.ineligible:
            words.append(f"{brokers_in_words(shape.ineligible)} no longer eligible to lead")
        if moved := sum(step.leader_moved and not step.offline for step in self.steps):
            words.append("leader moved" if count == 1 else f"{moved} leader{'s' * (moved != 1)} moved")
        counts = Counter(word for step in self.steps for word in ("offline",) * step.offline + step.further)
        # What is all that happened to all of them needs no count: the partitions are counted with it.
        is_all = count == 1 or (not words and set(counts.values()) == {count})
        words += [word if is_all else f"{_partitions(number)} {word}" for word, number in counts.items()]
        listed = "" if count == 1 else f" ({' '.join(names[:_LISTED])}{' ...' * (count > _LISTED)})"
        return names[0] if count == 1 else _partitions(count), (", ".join(words) or "changed") + listed


def movements(steps: Iterable[MovedPartition]) -> Iterator[Movement]:
    """Gather the steps of one moment by their shape, ordered by the first of each."""
    gathered: dict[StepShape, list[MovedPartition]] = {}
    for step in steps:
        gathered.setdefault(step.shape, []).append(step)
    for shape, alike in gathered.items():
        yield Movement(shape, tuple(alike))


def brokers_in_words(brokers: Iterable[int]) -> str:
    """Return ``broker 1``, ``brokers 1, 2``: next to counts of partitions a number alone would be taken for one."""
    numbers = [str(number) for number in brokers]
    return f"broker{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


# Moments as people read them.


def utc_text(moment: Micros) -> str:
    """Spell a moment, to the second.

    >>> utc_text(1_700_000_000_900_000)
    '2023-11-14 22:13:20Z'
    """
    return dt.datetime.fromtimestamp(moment // 1_000_000, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
