"""All brokers, topics and partitions of the controller, with indexes.

Laws of this file: a partition is replaced by :meth:`Registry.replace` and nowhere else, so indexes and transitions
cannot miss a step; whatever operations change is a :class:`Timeline`, so that it can be undone, or an index of one; and
every index is a dict used as an ordered set, so that two runs walk in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicId, TopicPartition
from streaming.model.messages.registrations import (
    BrokerRegistration,
    PartitionRegistration,
    TopicRegistration,
    Transition,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from streaming.contracts.events import Cause

OrderedSet = dict[TopicPartition, None]


class Registry:
    """The controller's state.

    Attributes:
        brokers, controllers, topics, partitions: by id; controllers with the incarnation of their process.
        directories: where each replica lies, of brokers with several log directories.
        configs: dynamic configuration by (topic, key); the topic "" stands for the cluster's defaults.
        transitions: gathers the steps since it was last emptied.
        leaderless, off_preferred_leader, reassigning: sets of partitions.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self.brokers: Timeline[BrokerId, BrokerRegistration] = Timeline(self.journal)
        self.controllers: Timeline[int, str] = Timeline(self.journal)
        self.topics: Timeline[TopicId, TopicRegistration] = Timeline(self.journal)
        self.configs: Timeline[tuple[str, str], str] = Timeline(self.journal)
        self.partitions: Timeline[TopicPartition, PartitionRegistration] = Timeline(self.journal)
        self.transitions: list[Transition] = []
        self.next_producer_id = 0
        self.leaderless: OrderedSet = {}
        self.off_preferred_leader: OrderedSet = {}
        self.reassigning: OrderedSet = {}
        self.directories: dict[BrokerId, dict[TopicPartition, str]] = {}
        self._topic_ids: Timeline[str, TopicId] = Timeline(self.journal)
        self._in_isr: dict[BrokerId, OrderedSet] = {}
        self._in_elr: dict[BrokerId, OrderedSet] = {}
        self._hosted: dict[BrokerId, OrderedSet] = {}
        self._led: dict[BrokerId, OrderedSet] = {}

    def with_isr_member(self, broker: BrokerId) -> list[TopicPartition]:
        """Partitions whose ISR has ``broker``."""
        return list(self._in_isr.get(broker, ()))

    def with_elr_member(self, broker: BrokerId) -> list[TopicPartition]:
        """Partitions whose ELR has ``broker``."""
        return list(self._in_elr.get(broker, ()))

    def hosted_by(self, broker: BrokerId) -> list[TopicPartition]:
        """Partitions that have a replica on ``broker``."""
        return list(self._hosted.get(broker, ()))

    def led_by(self, broker: BrokerId) -> list[TopicPartition]:
        """Partitions that ``broker`` leads."""
        return list(self._led.get(broker, ()))

    def leads_something(self, broker: BrokerId) -> bool:
        """Return whether ``broker`` leads any partition."""
        return bool(self._led.get(broker))

    def in_log_dirs(self, broker: BrokerId, names: Container[str]) -> list[TopicPartition]:
        """Partitions whose replica on ``broker`` lies in one of these directories."""
        placed = self.directories.get(broker, {})
        return [key for key, name in placed.items() if name in names and key in self._hosted.get(broker, ())]

    def is_offline(self, broker: BrokerId, key: TopicPartition) -> bool:
        """Return whether a replica lies in a directory that its broker cannot read."""
        name = self.directories[broker].get(key) if broker in self.directories else None
        return name is not None and broker in self.brokers and name not in self.brokers[broker].log_dirs

    def is_active(self, broker: BrokerId) -> bool:
        """Return whether ``broker`` is registered, unfenced and not shutting down."""
        registration = self.brokers.get(broker)
        return registration is not None and registration.is_active

    def topic_named(self, name: str) -> TopicRegistration | None:
        """Give a topic by its name."""
        return self.topics.get(self._topic_ids.get(name, TopicId("")))

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic, 0 if there is none (``Directory``)."""
        topic = self.topics.get(topic_id)
        return 0 if topic is None else topic.partitions

    def registration_of(self, key: TopicPartition) -> PartitionRegistration | None:
        """Give a partition."""
        return self.partitions.get(key)

    def add_topic(self, topic: TopicRegistration) -> None:
        """Make room for a topic's partitions."""
        self.topics[topic.topic_id] = topic
        self._topic_ids[topic.topic] = topic.topic_id

    def remove_topic(self, topic: TopicRegistration) -> None:
        """Forget a topic whose partitions are gone, and its configuration."""
        del self.topics[topic.topic_id], self._topic_ids[topic.topic]
        for name, key in [config for config in self.configs if config[0] == topic.topic]:
            del self.configs[name, key]

    def replace(
        self,
        topic: TopicRegistration,
        topic_partition: TopicPartition,
        after: PartitionRegistration | None,
        cause: Cause,
    ) -> None:
        """Take one step of one partition: create, change or (``after`` None) delete it."""
        before = self.partitions.get(topic_partition)
        if after is None:
            del self.partitions[topic_partition]
        else:
            self.partitions[topic_partition] = after
        self._index(topic_partition, before, after)
        self.transitions.append(Transition(topic, topic_partition, before, after, cause))

    def revert(self, offset: int) -> None:
        """Undo the operations beyond ``offset``: the log of a new controller does not have them."""
        for former in self.journal.since(offset):
            state = self.partitions.get(former.key) if former.mapping is self.partitions else None
            former.mapping.restore(former.key, former.value)
            if former.mapping is self.partitions:
                self._index(former.key, state, self.partitions.get(former.key))

    def _index(
        self, key: TopicPartition, before: PartitionRegistration | None, after: PartitionRegistration | None
    ) -> None:
        _move(self._in_isr, key, before.isr if before else (), after.isr if after else ())
        _move(self._in_elr, key, before.elr if before else (), after.elr if after else ())
        _move(self._hosted, key, before.replicas if before else (), after.replicas if after else ())
        _move(self._led, key, _leader(before), _leader(after))
        _mark(self.leaderless, key, marked=after is not None and after.leader == NO_LEADER)
        _mark(
            self.off_preferred_leader,
            key,
            marked=after is not None and after.leader not in {NO_LEADER, after.replicas[0]},
        )
        _mark(
            self.reassigning, key, marked=after is not None and bool(after.adding_replicas or after.removing_replicas)
        )


def _leader(state: PartitionRegistration | None) -> tuple[BrokerId, ...]:
    return () if state is None or state.leader == NO_LEADER else (state.leader,)


def _move(
    index: dict[BrokerId, OrderedSet], key: TopicPartition, before: Iterable[BrokerId], after: Iterable[BrokerId]
) -> None:
    if before == after:
        return
    for broker in before:
        if broker not in after:
            del index[broker][key]
    for broker in after:
        index.setdefault(broker, {})[key] = None


def _mark(index: OrderedSet, key: TopicPartition, *, marked: bool) -> None:
    if marked:
        index[key] = None
    else:
        index.pop(key, None)


# State that can go back: what an operation changed is undone if the quorum will never have it.
#
# Kafka's ``SnapshotRegistry`` with its ``TimelineHashMap``; here a journal of former values, forgotten once committed.


K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()


class _FormerValue(NamedTuple):
    """Value of a mapping under a key before a change."""

    mapping: Timeline[Any, Any]
    key: Any
    value: Any


class Journal:
    """Former values since the last committed operation, oldest first, with a mark after each operation.

    ``is_kept`` is set where an operation may be undone: among several controllers, or while batches linger.
    """

    def __init__(self) -> None:
        self.is_kept = False
        self.former: list[_FormerValue] = []
        self._marks: list[tuple[int, int]] = []

    def mark(self, offset: int) -> None:
        """An operation ends; the metadata log will then reach up to ``offset``."""
        if self.is_kept:
            self._marks.append((offset, len(self.former)))

    def forget(self, offset: int) -> None:
        """The log is committed up to ``offset``: the operations below cannot be undone any more."""
        below = 0
        while below < len(self._marks) and self._marks[below][0] <= offset:
            below += 1
        if below:
            cut = self._marks[below - 1][1]
            del self.former[:cut]
            self._marks = [(end, length - cut) for end, length in self._marks[below:]]

    def since(self, offset: int) -> list[_FormerValue]:
        """Take out what was changed by operations beyond ``offset``, the newest change first."""
        kept = [mark for mark in self._marks if mark[0] <= offset]
        length = kept[-1][1] if kept else 0
        undone = self.former[length:][::-1]
        del self.former[length:]
        self._marks = kept
        return undone


class Timeline(dict[K, V]):
    """A dict whose changes go into a journal. Change it with ``[]`` and ``del`` only; nothing else is journalled."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def __setitem__(self, key: K, value: V) -> None:
        if self._journal.is_kept:
            self._journal.former.append(_FormerValue(self, key, self.get(key, _ABSENT)))
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        if self._journal.is_kept:
            self._journal.former.append(_FormerValue(self, key, self[key]))
        super().__delitem__(key)

    def restore(self, key: K, value: Any) -> None:  # noqa: ANN401 - a former value, or that there was none
        """Put a former value back; nothing is journalled."""
        if value is _ABSENT:
            super().pop(key)
        else:
            super().__setitem__(key, value)
