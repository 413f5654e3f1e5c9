"""One Fetch after another: the metadata log of a real cluster, as it is committed.

Knows the protocol's state machines (:mod:`position`, :mod:`controllers`) and connections; nothing of what records mean.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, FetchResponse

from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.batches import decode, last_contained_time, split
from streaming.sources.metadata_log.connection import CannotServe, Connection
from streaming.sources.metadata_log.controllers import Controllers
from streaming.sources.metadata_log.messages import FetchSnapshotRequest, FetchSnapshotResponse, Leader, LogEnd
from streaming.sources.metadata_log.position import START, Position
from streaming.sources.metadata_log.quorum import CLUSTER_AUTHORIZATION_FAILED, Bootstrap, Dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.records import RecordBatch

LONG_POLL_MS: Final = 500
_FETCH_SECONDS: Final = 5.0
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_FORBIDDEN: Final = frozenset({CLUSTER_AUTHORIZATION_FAILED, _TOPIC_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A KRaft snapshot: the state at ``end``. The offsets of its batches are its own, not those of the log.

    A snapshot does not say who leads. ``leader`` does, unless an election came after it: then the log goes on to tell.
    """

    batches: tuple[RecordBatch, ...]
    end: LogEnd
    timestamp: Micros | None
    leader: Leader | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What one poll brought.

    Attributes:
        batches: newly committed, in the order of the log.
        snapshot: replaces everything read before.
        rewritten: everything read before is not in this log any more; it is read again from the start.
    """

    batches: tuple[RecordBatch, ...] = ()
    snapshot: LoadedSnapshot | None = None
    rewritten: bool = False


NOTHING: Final = Progress()


class Tail:
    """Reads the log of the active controller, wherever it moves to.

    Args:
        bootstrap: where to ask for the controllers.
        dial: opens connections to controllers.
        cluster_id: the controllers refuse us if theirs is another.
        end: what is known already; reading begins there.
        report: takes one line for people: connected, lost.
        pause: sleeps between attempts after an error.
    """

    def __init__(  # noqa: PLR0913 - what the network needs, and what tests replace
        self,
        bootstrap: Bootstrap,
        dial: Dial,
        *,
        cluster_id: ClusterId,
        end: LogEnd = START,
        report: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.position = Position(end)
        self._controllers = Controllers()
        self._bootstrap, self._dial = bootstrap, dial
        self._cluster_id = cluster_id
        self._report, self._pause = report, pause
        self._connection: Connection | None = None
        self._is_serving = False
        self._trouble = ""
        self._early: deque[Progress] = deque()

    def connect(self) -> None:
        """Go on until a controller serves us; what it brings is given out by the next :meth:`poll`.

        Raises:
            ConnectionRefused: as in :meth:`poll`.
        """
        while not self._is_serving:
            self._early.append(self.poll())

    def poll(self) -> Progress:
        """Ask once; wait up to half a second for news. After trouble it comes back empty, having paused for a moment.

        Raises:
            ConnectionRefused: neither the brokers nor any controller can help at the moment.
            CannotServe: we may not read the log; the sentence names the permission.
        """
        if self._is_serving and self._early:
            return self._early.popleft()
        if self._controllers.are_exhausted:
            self._discover()
        try:
            return self._ask()
        except CannotServe:
            self.close()
            raise
        except ConnectionRefused as trouble:
            if self._connection is None:
                self._controllers.unreachable()
            else:
                self._controllers.disconnected()
            self._lose(str(trouble))
            return NOTHING

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _discover(self) -> None:
        """Ask the brokers who leads; when every controller was asked in vain before, tell the caller."""
        in_vain = self._controllers.failures > 0
        try:
            self._controllers.learn(self._bootstrap.quorum())
        except ConnectionRefused:
            self._pause(_LONGEST_PAUSE)
            raise
        finally:
            self._controllers.failures = 0  # controllers may serve while every broker is down: they get another round
        if in_vain:
            raise ConnectionRefused(f"no controller serves the metadata log: {self._trouble}")

    def _ask(self) -> Progress:
        connection = self._connection or self._connect()
        answer = messages.read_fetch(connection.call(self._request(connection), FetchResponse))
        step = self.position.receive(answer)
        if step.error:
            self._refused(answer, connection)
            return NOTHING
        self._serve(connection)
        if step.corrupt:
            self._lose(f"{connection.address} sent a batch after offset {self.position.end.offset} that is damaged")
        snapshot = None if step.snapshot is None else self._load(connection, step.snapshot)
        return Progress(tuple(map(decode, step.frames)), snapshot, step.rewritten)

    def _connect(self) -> Connection:
        connection = self._dial(self._controllers.address, answer_seconds=_FETCH_SECONDS)
        if connection.newest(FetchRequest.API_KEY, messages.FETCH_NEWEST) < messages.FETCH_OLDEST:
            connection.close()
            raise CannotServe(f"{connection.address} is too old: it does not know Fetch {messages.FETCH_OLDEST}")
        self._connection = connection
        return connection

    def _request(self, connection: Connection) -> Any:  # noqa: ANN401 - kafka-python's messages ship no types
        return messages.fetch_request(
            connection.newest(FetchRequest.API_KEY, messages.FETCH_NEWEST),
            cluster_id=self._cluster_id,
            leader_epoch=self._controllers.epoch,
            end=self.position.end,
            high_watermark=self.position.high_watermark,
            wait_ms=LONG_POLL_MS,
        )

    def _serve(self, connection: Connection) -> None:
        self._controllers.served()
        if not self._is_serving:
            self._is_serving = True
            self._report(
                f"reading the metadata log from controller {self._controllers.target} at {connection.address}, "
                f"epoch {self._controllers.epoch}"
            )

    def _refused(self, answer: messages.FetchAnswer, connection: Connection) -> None:
        if answer.error in _FORBIDDEN:
            raise CannotServe(
                f"{connection.address} refuses the metadata log: grant ClusterAction on the Cluster resource to this "
                'user, or set collect.authority = "poll", which needs only Describe'
            )
        self._controllers.refused(answer)
        self._lose(f"{connection.address} says {for_code(answer.error).message}")

    def _lose(self, trouble: str) -> None:
        """Hang up, tell it once, and wait: a controller is never asked in a hot loop."""
        self.close()
        self._trouble = trouble
        if self._is_serving:
            self._is_serving = False
            self._report(f"lost the metadata log: {trouble}; looking for the leader")
        self._pause(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**self._controllers.failures))

    def _load(self, connection: Connection, snapshot: LogEnd) -> LoadedSnapshot | None:
        """Fetch a snapshot piece by piece; None where it is gone by now: the next Fetch names another."""
        data = bytearray()
        size = 1
        while len(data) < size:
            request = messages.fetch_snapshot_request(
                connection.newest(FetchSnapshotRequest.API_KEY, messages.FETCH_SNAPSHOT_NEWEST),
                cluster_id=self._cluster_id,
                leader_epoch=self._controllers.epoch,
                snapshot=snapshot,
                position=len(data),
            )
            chunk = messages.read_fetch_snapshot(connection.call(request, FetchSnapshotResponse))
            if chunk.error or not chunk.data:
                # Kafka 4.3.1 answers -1 for a snapshot that it has deleted meanwhile.
                self._pause(_LONGEST_PAUSE)
                return None
            data += chunk.data
            size = chunk.size
        frames = tuple(split(bytes(data)))
        self.position.restart(snapshot)
        times = filter(None, map(last_contained_time, frames[:1]))
        leader = Leader(self._controllers.target, self._controllers.epoch)
        return LoadedSnapshot(
            tuple(map(decode, frames)), snapshot, next(times, None), leader if leader.epoch == snapshot.epoch else None
        )
