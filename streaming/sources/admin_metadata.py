"""The cluster's metadata, read by a thread of its own and believed with care.

Knows confluent-kafka's admin client and the monotonic clock.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import Micros
from streaming.sources.admin_topic_ids import TopicIds
from streaming.sources.admin_view import ClusterView, is_doubtful, read_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import AdminClient

_SECOND_LOOKS: Final = 3  # an answer that may be old is believed when two brokers give it, or after so many looks
_SECOND_LOOK_AFTER: Final = Micros(300_000)  # longer than a healthy broker lags behind the metadata log
_HELD: Final = Micros(1_000_000)  # how long the other topics wait for the id of a new one
_IMPATIENT_AFTER: Final = Micros(1_000_000)  # then another broker is asked, too
_READERS: Final = 4


@dataclass(frozen=True, slots=True)
class Read:
    """A view with the monotonic time of its request and of its answer."""

    view: ClusterView
    began: Micros
    ended: Micros


class MetadataRound:
    """One question at a time, asked of one broker, and of another and another one as long as none answers.

    librdkafka asks the broker it last talked to, hung or not, but a client keeps to the broker that it was started
    with. So each question that comes too late has a client of its own, and the one that answers first is used from
    then on, for every other question as well: it knows the leaders that it was just told.

    Args:
        connect: makes a client of a list of addresses.
        bootstrap_servers: ``host:port``, comma-separated.
        cluster: stands for the cluster id where the version has none.
        name: of the threads.
        seconds: limit of each request.
    """

    def __init__(
        self,
        connect: Callable[[str], AdminClient],
        bootstrap_servers: str,
        *,
        cluster: str,
        name: str,
        seconds: float,
    ) -> None:
        self.client = connect(bootstrap_servers)
        self._connect = connect
        self._addresses = [address.strip() for address in bootstrap_servers.split(",")]
        self._next_address = 0
        self._cluster = cluster
        self._seconds = seconds
        self._ids = TopicIds(seconds)
        self._reader = ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix=name)
        self._readings: dict[Future[Read], AdminClient] = {}
        self._asked_at = Micros(0)
        self._until = Micros(0)
        self._held: Read | None = None
        self._doubts: list[ClusterView] = []

    def ask(self) -> None:
        """Send the question, unless an answer is still owed; to another broker while the last answer is in doubt."""
        if not self._readings:
            self._until = Micros(monotonic() + int(self._seconds * 1_000_000))
            self._submit(self._another() if self._doubts else self.client)

    def ask_ids(self, view: ClusterView) -> None:
        """Ask for every topic's id again: a topic that was made again may be placed as it was."""
        self._ids.ask(self.client, view.topics, everything=True)

    def second_look_after(self) -> Micros | None:
        """Tell how soon to ask again because the last answer is in doubt; None where it is not."""
        return _SECOND_LOOK_AFTER if self._doubts else None

    def pending(self) -> list[Future[Any]]:
        """Give what to wait for."""
        return [*self._ids.pending(), *(reading for reading in self._readings if not reading.done())]

    def take(self, before: ClusterView | None) -> Read | None:
        """Give the newest view when it is complete, with topic ids, and credible.

        Raises:
            KafkaException: nobody answered in time.
        """
        self._take_answer(before)
        if self._held is None:
            return None
        view = self._held.view
        self._ids.take(view.cluster_id)
        if self._ids.pending() and (before is None or monotonic() - self._held.ended < _HELD):
            return None
        read, self._held = self._held, None
        self._ids.forget_others(view.topics)
        unsettled = self._ids.unsettled(view.topics)
        if before is None and unsettled:
            if self._ids.failure is not None:
                raise self._ids.failure
            return None
        return replace(read, view=self._completed(view, before, frozenset(unsettled)))

    def close(self) -> None:
        """Let go of the thread; a request under way ends by its own limit."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _submit(self, client: AdminClient) -> None:
        self._asked_at = monotonic()
        seconds = (self._until - self._asked_at) / 1_000_000
        self._readings[self._reader.submit(self._read, client, seconds)] = client

    def _read(self, client: AdminClient, seconds: float) -> Read:
        began = monotonic()
        view = read_view(client, cluster=self._cluster, seconds=seconds)
        return Read(view, began, monotonic())

    def _take_answer(self, before: ClusterView | None) -> None:
        read = self._first_answer()
        if read is None:
            return
        if before is not None and is_doubtful(before, read.view) and not self._is_confirmed(read.view):
            self._doubts.append(read.view)
            return
        self._doubts, self._held = [], read
        self._ids.ask(self.client, read.view.topics)

    def _is_confirmed(self, view: ClusterView) -> bool:
        """Tell whether another broker has said the same, or nobody will: where brokers differ, it takes more looks."""
        is_alone = {view.answered_by} == {other.answered_by for other in self._doubts}
        return len(self._doubts) >= (_SECOND_LOOKS if is_alone else 2 * _SECOND_LOOKS) or any(
            view.answered_by != other.answered_by and (view.brokers, view.topics) == (other.brokers, other.topics)
            for other in self._doubts
        )

    def _first_answer(self) -> Read | None:
        """Take the first answer that came; a failure counts when nothing else is under way."""
        for reading in [reading for reading in self._readings if reading.done()]:
            client = self._readings.pop(reading)
            failure = reading.exception()
            if failure is None:
                # Those still under way would tell something older, later.
                self._readings.clear()
                self.client = client
                read = reading.result()
                self._addresses = [f"{host}:{port}" for host, port in read.view.brokers.values()] or self._addresses
                return read
            if not self._readings:
                raise failure
        self._ask_another()
        return None

    def _ask_another(self) -> None:
        is_slow = bool(self._readings) and monotonic() - self._asked_at > _IMPATIENT_AFTER
        if is_slow and self._until - monotonic() > _IMPATIENT_AFTER and len(self._readings) < _READERS:
            self._submit(self._another())

    def _another(self) -> AdminClient:
        """Make a client of the next broker."""
        self._next_address += 1
        return self._connect(self._addresses[self._next_address % len(self._addresses)])

    def _completed(self, view: ClusterView, before: ClusterView | None, unsettled: frozenset[str]) -> ClusterView:
        """Add the topic ids; a topic whose id is not certain stays as it was before."""
        old = {} if before is None else {name: parts for name, parts in before.topics.items() if name in unsettled}
        now = {name: parts for name, parts in view.topics.items() if name in self._ids.known and name not in unsettled}
        ids = {name: self._ids.known[name] for name in now}
        kept = {} if before is None else {name: before.topic_ids[name] for name in old}
        return replace(view, topics={**now, **old}, topic_ids={**ids, **kept})


def monotonic() -> Micros:
    """Tell the time that never jumps."""
    return Micros(time.monotonic_ns() // 1000)
