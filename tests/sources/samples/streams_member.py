"""A member of a streams group (KIP-1071), as no client of Python is one: it joins, and takes what it is assigned."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streaming.sources.protocol.connection import Connection, RawRequest, RawResponse, compact_array, compact_string
from streaming.sources.protocol.primitives import INT8, INT16, INT32, ByteReader

HEARTBEAT = 88
NULL = b"\0"
NO_TAGS = b"\0"
EMPTY = b"\1"
FIRST, LEAVING = 0, -1
Tasks = dict[str, tuple[int, ...]]


class Answer(NamedTuple):
    """The answer to a heartbeat: an error of Kafka or none, and the active tasks, None where they are unchanged."""

    error: int
    reason: str | None
    epoch: int
    statuses: tuple[str, ...]
    active: Tasks | None


class Member:
    """A member: its topology has subtopologies that read topics, one changelog each and a repartition topic for all.

    Args:
        connection: to the coordinator.
        group: its name.
        sources: the topics of each subtopology.
    """

    def __init__(self, connection: Connection, group: str, sources: Mapping[str, Sequence[str]]) -> None:
        self._connection, self._group, self._sources = connection, group, sources
        self._id, self._epoch = str(uuid.uuid4()), FIRST
        self.active: Tasks = {}

    def beat(self) -> Answer:
        """Send a heartbeat, and take the tasks that it assigns."""
        answer = RawResponse(_answer).value_of(self._connection, RawRequest(HEARTBEAT, 0, self._body()))
        if not answer.error:
            self._epoch = answer.epoch
            self.active = self.active if answer.active is None else answer.active
        return answer

    def leave(self) -> None:
        """Leave the group."""
        self._epoch = LEAVING
        self.beat()

    def _body(self) -> bytes:
        is_first = self._epoch == FIRST
        owned = compact_array(
            compact_string(name) + _numbers(numbers) + NO_TAGS for name, numbers in self.active.items()
        )
        return b"".join([
            compact_string(self._group),
            compact_string(self._id),
            INT32.pack(self._epoch),
            INT32.pack(0),  # the epoch of endpoints
            NULL + compact_string("rack-1"),
            INT32.pack(30_000),
            self._topology() if is_first else INT8.pack(-1),
            owned,
            EMPTY + EMPTY,  # standby and warm-up tasks
            compact_string("process-1"),
            INT8.pack(1) + compact_string("localhost") + struct.pack(">H", 8080) + NO_TAGS,
            compact_array([compact_string("zone") + compact_string("a") + NO_TAGS]),
            NULL + NULL,  # offsets of tasks, and the ends of their changelogs: not supported yet
            b"\0" + NO_TAGS,  # no shutdown
        ])  # fmt: skip

    def _topology(self) -> bytes:
        return (
            INT8.pack(1)
            + INT32.pack(1)
            + compact_array(self._subtopology(name, topics) for name, topics in self._sources.items())
            + NO_TAGS
        )

    def _subtopology(self, name: str, topics: Sequence[str]) -> bytes:
        changelog = compact_string(f"{self._group}-{name}-changelog") + struct.pack(">ih", 0, 1)
        compacted = compact_array([compact_string("cleanup.policy") + compact_string("compact") + NO_TAGS])
        return (
            compact_string(name)
            + compact_array(map(compact_string, topics))
            + EMPTY  # regular expressions
            + compact_array([changelog + compacted + NO_TAGS])
            + EMPTY * 3  # repartition topics, and topics with the same number of partitions
            + NO_TAGS
        )


def _numbers(numbers: Iterable[int]) -> bytes:
    return compact_array(map(INT32.pack, numbers))


def _answer(reader: ByteReader) -> Answer:
    error, reason = reader.number(INT16), reader.nullable_string()
    reader.string()  # its id
    epoch = reader.number(INT32)
    for _ in range(3):  # intervals, and the acceptable lag
        reader.number(INT32)
    statuses = reader.array(lambda: _status(reader)) or ()
    active = reader.array(lambda: _tasks(reader))
    return Answer(error, reason, epoch, statuses, None if active is None else dict(active))


def _status(reader: ByteReader) -> str:
    reader.number(INT8)
    detail = reader.string()
    reader.tags()
    return detail


def _tasks(reader: ByteReader) -> tuple[str, tuple[int, ...]]:
    name, numbers = reader.string(), reader.numbers("i") or ()
    reader.tags()
    return name, numbers
