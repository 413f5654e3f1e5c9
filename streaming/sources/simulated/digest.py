"""Many steps of one moment as one line: what a person wants to read when a broker with a thousand partitions dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.controller.commit import Commit
    from streaming.model.registrations import Transition

_LISTED = 3


class Movement(NamedTuple):
    """What steps of one batch have in common, and which partitions took them.

    Attributes:
        cause: the true one.
        left: brokers that left the ISR.
        joined: brokers that joined it.
        partitions: ``orders-0``, in the order of the batch.
        leaders_moved: how many of them changed their leader.
        offline: how many lost their leader and got no other.
        ineligible: brokers that left the ELR and are not in the ISR instead.
        created: their topic was created by this; ``deleted``: or deleted.
    """

    cause: str
    left: tuple[BrokerId, ...]
    joined: tuple[BrokerId, ...]
    partitions: tuple[str, ...]
    leaders_moved: int
    offline: int
    ineligible: tuple[BrokerId, ...]
    created: bool
    deleted: bool

    def sentence(self) -> tuple[str, str]:
        """Say it: (which partitions, what happened to them)."""
        count = len(self.partitions)
        subject = self.partitions[0] if count == 1 else f"{count} partitions"
        words = [word for word, said in (("created", self.created), ("deleted", self.deleted)) if said]
        if self.left:
            words.append(f"lost {_ids(self.left)} from the ISR")
        if self.joined:
            words.append(f"got {_ids(self.joined)} into the ISR")
        if self.ineligible:
            words.append(f"{_ids(self.ineligible)} no longer eligible to lead")
        if self.leaders_moved:
            words.append("leader moved" if count == 1 else f"{self.leaders_moved} leaders moved")
        if self.offline:
            words.append("offline" if count == 1 else f"{self.offline} offline")
        listed = "" if count == 1 else f" ({' '.join(self.partitions[:_LISTED])}{' ...' * (count > _LISTED)})"
        return subject, (", ".join(words) or "changed") + listed


def movements(commit: Commit) -> Iterator[Movement]:
    """Gather the steps of a batch by cause and by who left and joined."""
    gathered: dict[tuple[object, ...], list[Transition]] = {}
    for step in commit.transitions:
        gathered.setdefault(_shape(step), []).append(step)
    for steps in gathered.values():
        yield _movement(steps)


def _shape(step: Transition) -> tuple[object, ...]:
    return (step.cause, _left(step), _joined(step), _ineligible(step), step.before is None, step.after is None)


def _movement(steps: list[Transition]) -> Movement:
    first = steps[0]
    return Movement(
        cause=str(first.cause),
        left=_left(first),
        joined=_joined(first),
        partitions=tuple(f"{step.topic.topic}-{step.topic_partition.partition}" for step in steps),
        leaders_moved=sum(
            1 for step in steps if step.before and step.after and step.before.leader != step.after.leader
        ),
        offline=sum(1 for step in steps if _goes_offline(step)),
        ineligible=_ineligible(first),
        created=first.before is None,
        deleted=first.after is None,
    )


def _left(step: Transition) -> tuple[BrokerId, ...]:
    return _without(step.before.isr, step.after.isr) if step.before and step.after else ()


def _joined(step: Transition) -> tuple[BrokerId, ...]:
    return _without(step.after.isr, step.before.isr) if step.before and step.after else ()


def _ineligible(step: Transition) -> tuple[BrokerId, ...]:
    return _without(step.before.elr, (*step.after.elr, *step.after.isr)) if step.before and step.after else ()


def _goes_offline(step: Transition) -> bool:
    return bool(step.before and step.after and step.after.leader == NO_LEADER != step.before.leader)


def _without(members: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member not in others)


def _ids(brokers: tuple[BrokerId, ...]) -> str:
    return ", ".join(map(str, brokers))
