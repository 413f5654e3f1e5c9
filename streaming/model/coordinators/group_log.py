"""Memory of a group coordinator, which it gets by reading and writing its partitions.

State is what the log says: a record counts for the next decision as soon as it is appended, and for others
once it is committed (``CoordinatorRuntime``). So no answer rests on what another coordinator would not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from streaming.contracts.identifiers import partition_for
from streaming.model.broker.produce import AppendResult
from streaming.model.constants import Error
from streaming.model.coordinators.group_state import (
    ClassicGroup,
    ClassicGroupValue,
    ConsumerGroup,
    ConsumerGroupValue,
    ConsumerMemberValue,
    Member,
    OffsetCommitValue,
    Value,
    from_value,
)
from streaming.model.messages.clients import Acks
from streaming.model.messages.coordinators import SessionDue
from streaming.model.storage.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.produce import Produce
    from streaming.model.constants import Constants
    from streaming.model.messages.clients import ProducedPartition
    from streaming.model.messages.network import Outbox

if TYPE_CHECKING:
    Then = Callable[[int, Error], None]

# Answers to a client for a record that was not committed; anything else is COORDINATOR_NOT_AVAILABLE.
_ERROR_FOR_CLIENT: Final = {Error.NONE: Error.NONE, Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR}


def _error_for_client(error: Error) -> Error:
    return _ERROR_FOR_CLIENT.get(error, Error.COORDINATOR_NOT_AVAILABLE)


class Group:
    """Everything about one group: its members, of one protocol or the other, and its offsets.

    Attributes:
        written: by key of an offset what was written, as (offset after the record, value), oldest first.
    """

    __slots__ = ("classic", "consumer", "name", "written")

    def __init__(self, name: str) -> None:
        self.name = name
        self.classic: ClassicGroup | None = None
        self.consumer: ConsumerGroup | None = None
        self.written: dict[str, list[tuple[int, OffsetCommitValue | None]]] = {}

    def note(self, key: str, end: int, value: Value | None) -> None:
        """Take in what stands in the log, if it is about an offset."""
        if isinstance(value, OffsetCommitValue):
            self.written.setdefault(key, []).append((end, value))
        elif value is None and key in self.written:
            self.written[key].append((end, None))

    def committed(self, below: int) -> list[OffsetCommitValue]:
        """Give the offsets that stand below an offset; what they replaced is forgotten."""
        values = []
        for key, history in list(self.written.items()):
            while len(history) > 1 and history[1][0] <= below:
                history.pop(0)
            end, value = history[0]
            if end <= below and value is not None:
                values.append(value)
            elif end <= below and len(history) == 1:
                del self.written[key]
        return values


class LoadedPartition:
    """One led partition of ``__consumer_offsets``, and the groups that it keeps.

    Attributes:
        leader_epoch: the coordinator's epoch.
        loaded_end: where the log ended when it was read. All that stood there counts as committed: it may have been,
            even if this leader's high watermark does not say so yet.
    """

    __slots__ = ("groups", "leader_epoch", "loaded_end", "partition")

    def __init__(self, partition: LeaderPartition) -> None:
        self.partition = partition
        self.leader_epoch = partition.committed.leader_epoch
        self.loaded_end = partition.replica.log.end
        self.groups = read_groups(partition)


class GroupLog:
    """The led partitions of ``__consumer_offsets``."""

    def __init__(self, produce: Produce, constants: Constants) -> None:
        self._produce = produce
        self._timeout_ms = constants.offsets_commit_timeout_ms
        self._waits = constants.switches.coordinator_waits_for_commit
        self._partitions = 0
        self._loaded: dict[TopicPartition, LoadedPartition] = {}
        self._key_of: dict[int, TopicPartition] = {}

    # -------------------------------------------------------------- leader epochs

    def is_loaded(self, partition: LeaderPartition) -> bool:
        """Return whether a partition was read in this leader epoch."""
        loaded = self._loaded.get(partition.key)
        return loaded is not None and loaded.leader_epoch == partition.committed.leader_epoch

    def load(self, partition: LeaderPartition, partitions: int) -> LoadedPartition:
        """Read a partition from its first record to its end.

        Departs from Kafka: it takes no time, so there is no COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._partitions = partitions
        self._key_of[partition.key.partition] = partition.key
        loaded = self._loaded[partition.key] = LoadedPartition(partition)
        return loaded

    def unload(self, key: TopicPartition) -> LoadedPartition | None:
        """Forget a partition that another broker leads now, if it was read."""
        return self._loaded.pop(key, None)

    @property
    def is_empty(self) -> bool:
        """True if this broker coordinates nothing."""
        return not self._loaded

    def loaded(self) -> Iterator[LoadedPartition]:
        """Give everything this broker coordinates."""
        yield from self._loaded.values()

    def loaded_for(self, group: str) -> LoadedPartition | None:
        """Give the partition that keeps a group; None if another broker leads it."""
        if not self._partitions:
            return None
        key = self._key_of.get(partition_for(group, self._partitions))
        return None if key is None else self._loaded.get(key)

    # -------------------------------------------------------------- groups

    def find(self, name: str) -> Group | None:
        """Give a group, a new one if there is none; None if another broker coordinates it."""
        loaded = self.loaded_for(name)
        if loaded is None:
            return None
        return loaded.groups.setdefault(name, Group(name))

    def committed(self, group: Group) -> list[OffsetCommitValue]:
        """Give a group's committed offsets.

        Departs from Kafka without ``coordinator_waits_for_commit``: then whatever was written counts.
        """
        loaded = self.loaded_for(group.name)
        if loaded is None:
            return []
        replica = loaded.partition.replica
        return group.committed(max(replica.high_watermark, loaded.loaded_end) if self._waits else replica.log.end)

    def write(self, now: int, group: Group, values: Mapping[str, Value | None], then: Then) -> Error:
        """Write records with ``acks=all``; ``then`` is told once they are committed, with all that was before them.

        An error means that nothing was written, nothing changes, and ``then`` is not told. Without records it only
        waits.
        """
        loaded = self.loaded_for(group.name)
        if loaded is None:
            return Error.NOT_COORDINATOR
        key, replica = loaded.partition.key, loaded.partition.replica
        if not values and (replica.high_watermark >= replica.log.end or not self._waits):
            then(now, Error.NONE)
            return Error.NONE
        appended = self._append(now, loaded, values)
        if appended.error is not Error.NONE:
            return _error_for_client(appended.error)
        for name, value in values.items():
            group.note(name, appended.end_offset, value)

        def in_sync(at: int, outcomes: tuple[ProducedPartition, ...]) -> None:
            then(at, _error_for_client(outcomes[0].error))

        if self._waits:
            self._produce.when_in_sync(now, {key: appended}, self._timeout_ms, in_sync)
        else:
            then(now, Error.NONE)
        return Error.NONE

    def _append(self, now: int, loaded: LoadedPartition, values: Mapping[str, Value | None]) -> AppendResult:
        if not values:
            return AppendResult(Error.NONE, end_offset=loaded.partition.replica.log.end)
        batch = Batch(0, len(values), keys=tuple(values), values=tuple(values.values()))
        return self._produce.append(now, loaded.partition.key, batch, Acks.ALL)


def read_groups(partition: LeaderPartition) -> dict[str, Group]:
    """Compute the groups from a partition's records: the last value of a key counts."""
    groups: dict[str, Group] = {}
    group_of: dict[str, Group] = {}
    latest: dict[str, Value | None] = {}
    for batch in partition.replica.log.batches:
        for key, each in zip(batch.keys, batch.values, strict=True):
            value = latest[key] = cast("Value | None", each)
            if value is not None:
                group_of[key] = groups.setdefault(value.group, Group(value.group))
            if key in group_of:
                group_of[key].note(key, batch.end_offset, value)
    for key, value in latest.items():
        if value is not None and not isinstance(value, OffsetCommitValue):
            _take(group_of[key], value)
    return groups


def _take(group: Group, value: ClassicGroupValue | ConsumerGroupValue | ConsumerMemberValue) -> None:
    if isinstance(value, ClassicGroupValue):
        group.classic = from_value(value)
        return
    consumer = group.consumer or ConsumerGroup()
    if isinstance(value, ConsumerGroupValue):
        group.consumer = consumer._replace(
            epoch=value.epoch,
            counts=value.counts,
            target_epoch=value.target_epoch,
            target=dict(value.target),
            since_ms=value.since_ms,
        )
    else:
        members: dict[str, Member] = {**consumer.members, value.member.member_id: value.member}
        group.consumer = consumer._replace(members=members)


# Sessions of members: a member that is silent for its session timeout is gone. One timer a member.


class _Heartbeat(NamedTuple):
    at: int
    timeout_ms: int


class MemberSessions:
    """The sessions of all members that this broker coordinates."""

    def __init__(self, outbox: Outbox) -> None:
        self._heartbeats: dict[SessionDue, _Heartbeat] = {}
        self._armed: set[SessionDue] = set()
        self._outbox = outbox

    def heartbeat(self, now: int, group: str, member_id: str, timeout_ms: int) -> None:
        """A member shows that it is alive."""
        timer = SessionDue(group, member_id)
        self._heartbeats[timer] = _Heartbeat(now, timeout_ms)
        if timer not in self._armed:
            self._armed.add(timer)
            self._outbox.after(timeout_ms, timer)

    def forget(self, group: str, members: Iterable[str]) -> None:
        """Forget members."""
        for member_id in members:
            self._heartbeats.pop(SessionDue(group, member_id), None)

    def expires(self, now: int, timer: SessionDue) -> bool:
        """Return whether a session is over; otherwise look again when it could be."""
        self._armed.discard(timer)
        heartbeat = self._heartbeats.get(timer)
        if heartbeat is None:
            return False
        left = heartbeat.at + heartbeat.timeout_ms - now
        if left > 0:
            self._armed.add(timer)
            self._outbox.after(left, timer)
            return False
        del self._heartbeats[timer]
        return True
