"""Partitions of a polled cluster as they were seen last, and the steps that an answer shows. Pure.

The metadata of the whole cluster are read at their interval, some partitions in between. The answers come from several
brokers, each of which follows the metadata at a pace of its own: an answer that was asked for later may show what was
before. So the answer of each partition is kept with its times and its broker, and decides which of two is newer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, Micros
from streaming.sources.polling.inference.fates import Step
from streaming.sources.polling.view import comparable, goes_back, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.sources.polling.view import ClusterView, PartitionView

Key = tuple[str, int]
LATE: Final = Micros(10_000_000)
"""Longer than a broker takes to read the metadata after its start."""


class Answered(NamedTuple):
    """Times of a question about partitions and of the answer, and the broker that gave it."""

    asked: Micros
    ended: Micros
    by: int


class NewSteps(NamedTuple):
    """Steps that an answer shows."""

    before: ClusterView | None
    after: ClusterView
    steps: tuple[Step, ...]
    since: Micros
    """Time at which the earlier answer was asked for."""
    is_new_log: bool = False


class SeenPartitions:
    """The newest answer about each partition.

    Attributes:
        view: all of it; None before the metadata were read.
        read: when the metadata were read last, and from whom.
    """

    def __init__(self) -> None:
        self.view: ClusterView | None = None
        self.read = Answered(Micros(0), Micros(0), -1)
        self._answered: dict[Key, Answered] = {}
        """Answers about single partitions since the metadata were read."""
        self._unconfirmed: dict[Key, tuple[PartitionView, int]] = {}
        """Answers of one broker that another one has to confirm."""
        self._replaced: dict[Key, tuple[PartitionView, Micros]] = {}
        """State of each partition before its last step, and the end of that step."""

    def read_all(self, view: ClusterView, answered: Answered, remembered: ClusterView | None) -> NewSteps:
        """Take the metadata that were read; ``remembered`` is compared where nothing was read before."""
        before, last = self.view, self.view or remembered
        newest = view if before is None else self._with_newer(before, view, answered.asked)
        # What single partitions showed after this was asked for makes it late, and the metadata log no other one.
        is_new_log = last is not None and goes_back(last, newest)
        after = view if is_new_log else newest
        steps = () if before is None else tuple(self._steps(before, after, answered))
        since = answered.asked if before is None else self.read.asked
        self.view, self.read, self._answered = after, answered, {}
        self._replaced = {key: each for key, each in self._replaced.items() if answered.ended - each[1] < LATE}
        self._note(steps)
        return NewSteps(before, after, steps, since, is_new_log)

    def read_some(self, topics: Mapping[str, Mapping[int, PartitionView]], answered: Answered) -> NewSteps | None:
        """Take an answer about some partitions; None if it shows nothing new."""
        before = self.view
        if before is None:
            return None
        changed: dict[str, dict[int, PartitionView]] = {}
        for topic, number, said in _each(topics):
            old = before.topics.get(topic, {}).get(number)
            if old is None or topic in before.hidden:
                continue
            new = said if said == old else _as_in_view(old, said, before)
            if new is None or self._is_older((topic, number), old, new, answered):
                continue
            if new != old:
                changed.setdefault(topic, dict(before.topics[topic]))[number] = new
            else:
                self._answered[topic, number] = answered
                self._unconfirmed.pop((topic, number), None)
        if not changed:
            return None
        self.view = after = replace(before, topics={**before.topics, **changed})
        steps = tuple(self._steps(before, after, answered))
        self._answered |= {(step.topic, step.number): answered for step in steps}
        self._note(steps)
        return NewSteps(before, after, steps, min((step.since for step in steps), default=answered.asked))

    def doubt_since(self, moment: Micros) -> None:
        """Take back that anything was seen after a moment: who answered may have repeated what it saw before."""
        self.read = self.read._replace(asked=min(self.read.asked, moment))
        self._answered = {key: each._replace(asked=min(each.asked, moment)) for key, each in self._answered.items()}

    def _note(self, steps: tuple[Step, ...]) -> None:
        self._replaced |= {
            (step.topic, step.number): (step.before, step.until) for step in steps if step.before is not None
        }

    def _with_newer(self, before: ClusterView, view: ClusterView, asked: Micros) -> ClusterView:
        """Keep what partitions are known to be by answers that were asked for later, unless their epoch is higher."""
        topics = {**view.topics}
        for (topic, number), answered in self._answered.items():
            new = topics.get(topic, {}).get(number)
            if new is None or answered.ended <= asked or before.topic_ids.get(topic) != view.topic_ids.get(topic):
                continue
            old = before.topics[topic][number]
            if (new.leader_epoch or 0) <= (old.leader_epoch or 0):
                topics[topic] = {**topics[topic], number: old._replace(reassignment=new.reassignment)}
        return replace(view, topics=topics)

    def _is_older(self, key: Key, old: PartitionView, new: PartitionView, answered: Answered) -> bool:
        """Return whether an answer may be from before what is known: brokers follow the metadata at their own pace.

        One that is cut off from the controllers repeats what it saw last. So if an ISR grew, or a leader is there
        again, another broker has to agree, unless what is known is of the same one. So it has to if an ISR is again
        what it was just before: one that was started again may not have read yet that it is in sync.
        """
        last = self._answered.get(key, self.read)
        if old.leader_epoch is not None and new.leader_epoch is not None and new.leader_epoch != old.leader_epoch:
            return new.leader_epoch < old.leader_epoch
        is_grown = not set(new.isr) <= set(old.isr) or (old.leader == NO_LEADER != new.leader)
        was, until = self._replaced.get(key, (None, Micros(0)))
        is_back = was == new and answered.asked - until < LATE
        if answered.by == last.by or not (is_grown or is_back):
            return answered.asked < last.asked
        agreed, self._unconfirmed[key] = self._unconfirmed.get(key), (new, answered.by)
        return answered.asked < last.ended or agreed is None or agreed[0] != new or agreed[1] == answered.by

    def _steps(self, before: ClusterView, after: ClusterView, answered: Answered) -> Iterator[Step]:
        for topic, parts in after.topics.items():
            old = before.topics.get(topic)
            if parts is old or topic in after.hidden:
                continue
            is_same = before.topic_ids.get(topic) == after.topic_ids.get(topic)
            is_first = topic in before.hidden
            for number, new in parts.items():
                was = comparable((old or {}).get(number) if is_same else None, new, before, after)
                if was == new or is_first:
                    continue
                since = self._answered.get((topic, number), self.read).asked
                yield Step(topic, number, was, new, since, answered.ended)


def _as_in_view(old: PartitionView, new: PartitionView, view: ClusterView) -> PartitionView | None:
    """Return an answer as a view would have it; None where it says less."""
    if new.leader == UNSEEN_LEADER or set(new.replicas) != set(old.replicas):
        return None
    if not view.has_elr:
        new = new._replace(elr=(), last_known_elr=())
    return new._replace(isr=in_order(new.isr, new.replicas), reassignment=old.reassignment)


def _each(topics: Mapping[str, Mapping[int, PartitionView]]) -> Iterator[tuple[str, int, PartitionView]]:
    for topic, parts in topics.items():
        for number, view in parts.items():
            yield topic, number, view
