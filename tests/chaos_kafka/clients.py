"""Who uses the cluster beside the producers: a lagging group, a stuck one, an open transaction, and one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.sources.samples.late_producer import leave_hanging

LAGS_BY: Final = 7
HUNG: Final = "hung"
"""The topic of the transaction that hangs; nothing else is done to it."""
_COMMIT_SECONDS: Final = 0.5
_PATIENCE: Final = 5.0


class Member(threading.Thread):
    """The member of a group: it commits what it has read, but for the last records, until it is quiet or stuck."""

    def __init__(self, servers: str, group: str, topics: Sequence[str], *, protocol: str, is_stuck: bool) -> None:
        super().__init__(name=f"member-{group}", daemon=True)
        self._consumer = Consumer({
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 2000,
            "log_level": 2,
        })  # fmt: skip
        self._consumer.subscribe([*topics])
        self._is_stuck, self._committed = is_stuck, set[tuple[str, int]]()
        self._may_commit, self._ended = threading.Event(), threading.Event()
        self._may_commit.set()

    def run(self) -> None:
        while not self._ended.is_set():
            with suppress(KafkaException, RuntimeError):
                self._consumer.consume(1000, timeout=_COMMIT_SECONDS)
                if self._may_commit.is_set():
                    self._commit()
        self._consumer.close()

    def quiet(self, *, is_quiet: bool) -> None:
        """Commit nothing from now on, or again."""
        (self._may_commit.clear if is_quiet else self._may_commit.set)()

    def end(self) -> None:
        self._ended.set()

    def _commit(self) -> None:
        """Commit in each partition; a member that is stuck did so once."""
        positions = self._consumer.position(self._consumer.assignment())
        behind = [
            TopicPartition(one.topic, one.partition, max(0, one.offset - LAGS_BY))
            for one in positions
            if one.offset >= 0 and (one.topic, one.partition) not in self._committed
        ]
        if behind:
            self._consumer.commit(offsets=behind, asynchronous=False)
        if self._is_stuck:
            self._committed |= {(one.topic, one.partition) for one in behind}


class Clients:
    """All of them. A context manager.

    Attributes:
        hanging: the producers whose transactions hang.
    """

    def __init__(self, servers: str, say: Callable[[str], None], *, has_new_protocol: bool) -> None:
        self._servers, self._say = servers, say
        self.hanging: list[int] = []
        self._members = [
            Member(servers, "lagging", ["orders", "payments"], protocol="classic", is_stuck=False),
            Member(servers, "stuck", ["audit"], protocol="consumer" if has_new_protocol else "classic", is_stuck=True),
        ]
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        for member in self._members:
            member.start()
        self.begin_transaction()  # the first request for a coordinator creates the topic of transactions
        left = leave_hanging(self._servers, "left-hanging", HUNG)
        assert not left.error, left
        self.hanging.append(left.producer_id)
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:
            member.end()
        for member in self._members:
            member.join(30)

    def quiet(self, *, is_quiet: bool) -> None:
        """Write nothing, not even commits, from now on, or again. The transaction stays open."""
        for member in self._members:
            member.quiet(is_quiet=is_quiet)

    def begin_transaction(self) -> None:
        """End the transaction, if the cluster lets it, and begin another one."""
        try:
            if self._producer is not None:
                self._producer.commit_transaction(_PATIENCE)
            else:
                self._producer = self._opened()
            self._producer.begin_transaction()
            for topic in ("orders", "payments"):
                self._producer.produce(topic, b"v", partition=0)
            self._producer.flush(_PATIENCE)
        except KafkaException as refusal:
            self._say(f"    the transaction: {refusal}")
            self._producer = None  # the next one fences it

    def _opened(self) -> Producer:
        settings: dict[str, Any] = {"transactional.id": "open", "transaction.timeout.ms": 600_000, "log_level": 2}
        producer = Producer({"bootstrap.servers": self._servers, "message.timeout.ms": 10_000, **settings})
        producer.init_transactions(_PATIENCE * 2)
        return producer
