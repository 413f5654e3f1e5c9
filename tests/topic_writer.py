"""A producer that writes to every partition of a topic continuously, for tests under load."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from confluent_kafka import Producer

if TYPE_CHECKING:
    from types import TracebackType

    from confluent_kafka import KafkaError, Message


class TopicWriter:
    """Writes one record to each partition every ``interval_seconds`` until the context ends.

    ``acks`` is "0", "1" or "all". ``delivered`` counts acknowledged records, ``failed`` those that failed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        acks: str = "1",
        interval_seconds: float = 0.05,
        record_bytes: int = 100,
    ) -> None:
        self.delivered = 0
        self.failed = 0
        self._topic = topic
        self._value = b"x" * record_bytes
        self._interval_seconds = interval_seconds
        self._over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": acks, "message.timeout.ms": 10_000, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._write, name=f"writer-{topic}", daemon=True)

    def __enter__(self) -> Self:
        self._partitions = list(self._producer.list_topics(self._topic, timeout=30).topics[self._topic].partitions)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(5)

    def _write(self) -> None:
        while not self._over.wait(self._interval_seconds):
            for partition in self._partitions:
                try:
                    self._producer.produce(self._topic, self._value, partition=partition, on_delivery=self._count)
                except BufferError:  # a leaderless partition has filled the queue: wait
                    break
            self._producer.poll(0)

    def _count(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
