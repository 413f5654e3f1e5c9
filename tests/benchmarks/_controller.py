"""A controller that leads the metadata log of the stand-ins' cluster, in a process of its own.

The timestamp of what it appends is the moment before it is sent, so that a reader can say how late it is.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from streaming.sources.metadata_log import decoding
from streaming.sources.metadata_log.decoding import split
from streaming.sources.protocol.connection import compact_string, unsigned_varint
from tests.benchmarks._running import child
from tests.benchmarks._stand_ins import BROKERS, CONTROLLER, PARTITIONS_OF_A_TOPIC, id_of, name_of
from tests.sources.metadata_log.conftest import Node, Quorum, batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

    from streaming.sources.metadata_log.decoding import EncodedBatch

IDLE_SECONDS: Final = 0.5  # metadata.max.idle.interval.ms: so often the controller appends a record without a change
_ISR: Final = 0  # a tagged field of PartitionChange
_PARTITION_VERSION: Final = 1
_ATTRIBUTES_AT: Final = 21  # in a record batch, behind its checksum, which is that of all that follows
_TIMES_AT: Final = 27


class Leader(Node):
    """Serves the log as Kafka does: it waits for what is asked for as long as it may, and then sends it at once."""

    def _records(self, offset: int, wait_ms: int) -> bytes:
        quorum = self.quorum
        with quorum.news:
            if offset >= quorum.end:
                quorum.news.wait(timeout=wait_ms / 1000)
            first = next((n for n in range(len(quorum.log), 0, -1) if quorum.log[n - 1].base_offset <= offset), 1)
            quorum.requests.clear()
            return b"".join(frame.data for frame in quorum.log[first - 1 :] if frame.last_offset >= offset)


class Log:
    """The metadata log of a cluster of so many partitions."""

    def __init__(self, partitions: int) -> None:
        self.partitions, self._shrunk = partitions, set[int]()
        self.quorum = Quorum(leader=CONTROLLER)
        self.node = Leader(self.quorum, CONTROLLER)
        self.quorum.nodes[CONTROLLER] = self.node
        for topic in range(-(-partitions // PARTITIONS_OF_A_TOPIC)):
            self.append([_topic(topic), *map(_partition, self._numbers_of(topic))])

    def append(self, records: Sequence[bytes]) -> None:
        written = batch(0, 1, *records).data
        with self.quorum.news:
            self.quorum.append(_stamped(written, self.quorum.end))

    def change(self, numbers: Sequence[int]) -> None:
        """Let the last replica of some partitions leave the ISR, or come back, in one record batch."""
        records = []
        for number in numbers:
            self._shrunk ^= {number}
            isr = _replicas(number)[: 2 if number in self._shrunk else 3]
            records.append(_change(number, isr))
        self.append(records)

    def _numbers_of(self, topic: int) -> range:
        first = topic * PARTITIONS_OF_A_TOPIC
        return range(first, min(first + PARTITIONS_OF_A_TOPIC, self.partitions))


def _stamped(written: bytes, offset: int) -> EncodedBatch:
    """Give a batch its offset and the time, just before it is sent."""
    now = time.time_ns() // 1_000_000
    rest = written[_ATTRIBUTES_AT:_TIMES_AT] + struct.pack(">qq", now, now) + written[_TIMES_AT + 16 :]
    (stamped,) = split(
        struct.pack(">q", offset) + written[8 : _ATTRIBUTES_AT - 4] + struct.pack(">I", crc32c(rest)) + rest
    )
    return stamped


def _replicas(number: int) -> list[int]:
    return [(number % PARTITIONS_OF_A_TOPIC + each) % BROKERS + 1 for each in range(3)]


def _record(key: int, version: int, body: bytes, tags: Sequence[tuple[int, bytes]] = ()) -> bytes:
    encoded = b"".join(unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in tags)
    head = b"\1" + unsigned_varint(key) + unsigned_varint(version)
    return head + body + unsigned_varint(len(tags)) + encoded


def _numbers(numbers: Sequence[int]) -> bytes:
    return unsigned_varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _place(number: int) -> tuple[bytes, bytes]:
    topic, partition = divmod(number, PARTITIONS_OF_A_TOPIC)
    return struct.pack(">i", partition), id_of(topic).bytes


def _topic(topic: int) -> bytes:
    return _record(decoding.TOPIC, 0, compact_string(name_of(topic)) + id_of(topic).bytes)


def _partition(number: int) -> bytes:
    replicas, (partition, topic_id) = _replicas(number), _place(number)
    assigned = _numbers(replicas) * 2 + _numbers(()) * 2
    epochs = struct.pack(">iii", replicas[0], 0, 0)
    directories = unsigned_varint(len(replicas) + 1) + bytes(16 * len(replicas))
    return _record(decoding.PARTITION, _PARTITION_VERSION, partition + topic_id + assigned + epochs + directories)


def _change(number: int, isr: Sequence[int]) -> bytes:
    return _record(decoding.PARTITION_CHANGE, _PARTITION_VERSION, b"".join(_place(number)), [(_ISR, _numbers(isr))])


_NO_OP: Final = _record(decoding.NO_OP, 0, b"")


class Controller:
    """The controller in its process, by the pipe to it.

    Attributes:
        port: where it listens.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.port: int = pipe.recv()

    def change(self, count: int) -> None:
        """Let that many partitions take a step, by one record batch."""
        self._do("change", count)

    def flap(self, changes: int, seconds: float) -> None:
        """Let one partition after the other take a step, at random moments that are so far apart on average."""
        self._do("flap", changes, seconds)

    def _do(self, *what: object) -> None:
        self._pipe.send(what)
        self._pipe.recv()


@contextmanager
def controller(partitions: int) -> Iterator[Controller]:
    """Run the controller of a cluster of so many partitions."""
    with child(serve, partitions) as (pipe, _):
        yield Controller(pipe)


def serve(pipe: Pipe, partitions: int) -> None:
    """Serve the log until the pipe ends."""
    log, stopped = Log(partitions), threading.Event()

    def idle() -> None:
        while not stopped.wait(IDLE_SECONDS):
            log.append([_NO_OP])

    threading.Thread(target=idle, daemon=True).start()
    pipe.send(log.node.port)
    dice = random.Random(1)
    while True:
        try:
            what, count, *more = pipe.recv()
        except EOFError:
            break
        _carry_out(log, what, count, dice, *more)
        pipe.send(None)
    stopped.set()
    log.node.stop()


def _carry_out(log: Log, what: str, count: int, dice: random.Random, *more: Any) -> None:
    if what == "change":
        log.change(range(count))
        return
    for _ in range(count):
        time.sleep(dice.uniform(0, 2 * more[0]))
        log.change([dice.randrange(log.partitions)])
