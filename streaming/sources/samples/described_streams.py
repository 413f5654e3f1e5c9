"""A streams group (KIP-1071), as StreamsGroupDescribe 0 describes it: read from bytes.

A member has tasks, and a task reads one partition of every source topic of its subtopology, if there is one of that
number. Standby and warm-up tasks read changelogs alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.sources.protocol.primitives import INT8, INT16, INT32, UINT16

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.sources.protocol.primitives import ByteReader

    Tasks = Sequence[tuple[str, tuple[int, ...]]]
    """Subtopologies, with the partitions that a member reads in the topics of each."""

_NULL: Final = -1
_OF_TOPIC: Final = struct.Struct(">ih")  # partitions, replication factor
_OF_TASK: Final = struct.Struct(">iq")  # partition, offset


class StreamsGroup(NamedTuple):
    """One group, with an error of Kafka or none.

    Attributes:
        sources: the topics that each subtopology reads.
        members: the client id of each, and its active tasks.
    """

    error: int
    group: str
    state: str
    sources: Mapping[str, tuple[str, ...]]
    members: Sequence[tuple[str, Tasks]]

    @property
    def shares(self) -> list[tuple[str, list[tuple[str, tuple[int, ...]]]]]:
        """The topics and partitions of each member, those included that no topic has."""
        return [
            (
                client,
                [(topic, numbers) for subtopology, numbers in tasks for topic in self.sources.get(subtopology, ())],
            )
            for client, tasks in self.members
        ]


def read_streams_group(reader: ByteReader) -> StreamsGroup:
    """Read a group.

    Raises:
        Quarantined: the bytes are none.
    """
    error, _, name, state = reader.number(INT16), reader.nullable_string(), reader.string(), reader.string()
    for _ in range(2):  # group epoch, assignment epoch
        reader.number(INT32)
    sources = _topology(reader)
    members = reader.array(lambda: _member(reader)) or ()
    reader.number(INT32)  # authorized operations
    reader.tags()
    return StreamsGroup(error, name, state, dict(sources), members)


def _topology(reader: ByteReader) -> Sequence[tuple[str, tuple[str, ...]]]:
    if reader.number(INT8) == _NULL:
        return ()
    reader.number(INT32)  # its epoch
    subtopologies = reader.array(lambda: _subtopology(reader)) or ()
    reader.tags()
    return subtopologies


def _subtopology(reader: ByteReader) -> tuple[str, tuple[str, ...]]:
    name, topics = reader.string(), reader.array(reader.string) or ()
    reader.array(reader.string)  # the repartition topics that it writes
    reader.array(lambda: _internal_topic(reader))  # its changelogs
    repartitioned = reader.array(lambda: _internal_topic(reader)) or ()
    reader.tags()
    return name, (*topics, *repartitioned)


def _internal_topic(reader: ByteReader) -> str:
    name, _ = reader.string(), reader.structure(_OF_TOPIC)
    reader.array(lambda: _pair(reader))
    reader.tags()
    return name


def _member(reader: ByteReader) -> tuple[str, Tasks]:
    reader.string()  # its id
    reader.number(INT32)
    for _ in range(2):  # instance and rack
        reader.nullable_string()
    client, _ = reader.string(), reader.string()
    reader.number(INT32)  # the epoch of its topology
    reader.string()  # its process
    if reader.number(INT8) != _NULL:  # its endpoint: host and port
        reader.string()
        reader.number(UINT16)
        reader.tags()
    reader.array(lambda: _pair(reader))  # its tags
    for _ in range(2):  # offsets of its tasks, and the ends of their changelogs
        reader.array(lambda: _task_offset(reader))
    active, _ = _assignment(reader), _assignment(reader)  # the present one, and the target
    reader.boolean()  # whether it speaks the classic protocol
    reader.tags()
    return client, active


def _assignment(reader: ByteReader) -> Tasks:
    active, *_ = (reader.array(lambda: _task_ids(reader)) or () for _ in range(3))  # then standby and warm-up tasks
    reader.tags()
    return active


def _task_ids(reader: ByteReader) -> tuple[str, tuple[int, ...]]:
    subtopology, numbers = reader.string(), reader.numbers("i") or ()
    reader.tags()
    return subtopology, numbers


def _task_offset(reader: ByteReader) -> None:
    reader.string()
    reader.structure(_OF_TASK)
    reader.tags()


def _pair(reader: ByteReader) -> None:
    for _ in range(2):
        reader.string()
    reader.tags()
