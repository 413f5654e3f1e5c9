"""Tails the committed metadata log of a real cluster, with one Fetch after another.

Depends on the protocol's state machines (:mod:`position`, :mod:`controllers`) and connections, not on the meaning of
records.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, FetchResponse

from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, is_intact, split
from streaming.sources.metadata_log.messages import FetchResponseFields, LoadedSnapshot, LogEnd
from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.permissions import CLUSTER_ACTION, PermissionDenied
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, Connection, Dial, ServiceRefused
from streaming.sources.protocol.identity import NodeIdentity, Role, responder
from streaming.sources.protocol.quorum_messages import Leader, Quorum
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.records import RecordBatch
    from streaming.sources.protocol.addresses import Address

# The controller to fetch the metadata log from: the last known leader, else every controller in turn. No socket.


NO_NODE: Final = -1
_NOT_LEADER: Final = 6
_ROUNDS: Final = 2


class Controllers:
    """The controllers of one cluster.

    Args:
        fixed: their addresses, whatever they say; without any, those that they say.

    Attributes:
        target: the controller for the next request.
        leader: who answered the last one.
        epoch: the newest known leader epoch, which a Fetch must carry. It decreases only when all are asked again.
        failures: consecutive requests without success.
    """

    def __init__(self, fixed: Mapping[int, Address]) -> None:
        self.target = self.leader = NO_NODE
        self.epoch = 0
        self.failures = 0
        self._fixed = fixed
        self._addresses: dict[int, Address] = {}
        self._unreachable_leader = self._named_leader = Leader(NO_NODE, NO_NODE)

    @property
    def address(self) -> Address:
        """The address of the target."""
        return self._addresses[self.target]

    @property
    def are_exhausted(self) -> bool:
        """True if no controller is known, or all of them failed: the brokers must be asked."""
        return not self._addresses or self.failures >= _ROUNDS * len(self._addresses)

    def learn(self, quorum: Quorum) -> None:
        """Replace everything by a DescribeQuorum response: brokers forward that request to the leader itself."""
        self._addresses = dict(quorum.nodes)
        self.target, self.epoch = quorum.leader.node, quorum.leader.epoch
        self.failures = 0

    def who_leads(self, quorum: Quorum | None) -> str:
        """Say who leads, and where it is asked: by an answer of the brokers, else by what controllers answered last."""
        node = self._named_leader.node if quorum is None else quorum.leader.node
        if node == NO_NODE:
            return ""
        if self._fixed and node not in self._fixed:
            return f"; controller {node} leads, and has no address in cluster.controllers.addresses: add it"
        address = self._fixed.get(node) or self._addresses.get(node)
        return "" if quorum is None else f"; the brokers say that controller {node} leads, which is asked at {address}"

    def try_fixed(self) -> bool:
        """Ask the controllers at their fixed addresses, if there are any, which of them leads, in whichever epoch."""
        self._addresses = dict(self._fixed)
        self.failures = 0
        self.epoch = 0 if self._fixed else self.epoch
        if self._fixed and self.target not in self._fixed:
            self.target = self._next()
        return bool(self._fixed)

    def refused(self, response: FetchResponseFields) -> None:
        """Process an error response, which mostly contains the current leader.

        The leader in it is ignored when its epoch is older than the newest known one, when it was unreachable in this
        very epoch (its followers still name it until the next election), or when its address is unknown. So is one that
        is the target, and says that it does not lead: it has resigned, or another controller answers at its address.
        """
        self.failures += 1
        self._addresses.update({} if self._fixed else response.nodes)
        leader = response.leader or Leader(NO_NODE, NO_NODE)
        is_usable = leader.epoch >= self.epoch and leader != self._unreachable_leader and leader.node in self._addresses
        is_usable &= not self.is_misled(response)
        self._named_leader = leader if leader.epoch >= self.epoch else self._named_leader
        self.epoch = max(self.epoch, leader.epoch)
        self.target = leader.node if is_usable else self._next()

    def disconnected(self) -> None:
        """Note that the connection broke, and try the next controller."""
        self.failures += 1
        self.target = self._next()

    def unreachable(self) -> None:
        """Note that the target refuses connections, and try the next controller."""
        self._unreachable_leader = Leader(self.target, self.epoch)
        self.disconnected()

    def is_misled(self, response: FetchResponseFields) -> bool:
        """Return whether a refusal names the target as the leader: it has resigned, or another one answers there."""
        leader = response.leader
        return response.error == _NOT_LEADER and leader is not None and leader.node == self.target

    def answered(self, response: FetchResponseFields) -> None:
        """Note who leads: only the leader answers, and it says who it is, whatever its address stands for."""
        leader = response.leader or Leader(NO_NODE, NO_NODE)
        self.leader = self.target if leader.node < 0 else leader.node

    def served(self) -> None:
        """Note that the target responded as the leader."""
        self.failures = 0
        self._unreachable_leader = Leader(NO_NODE, NO_NODE)

    def _next(self) -> int:
        """Return the controller with the next id."""
        ids = sorted(self._addresses)
        return next((node for node in ids if node > self.target), ids[0])


# The read position in the metadata log, and the effect of each Fetch response (KIP-595, KIP-630). No socket, no clock.
#
# The leader also returns records that are not committed yet, because its followers replicate them. They are *held*
# until the high watermark passes them, and dropped when the leader responds with a diverging epoch before them.


NONE: Final = 0
START: Final = LogEnd(0, 0)
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The effect of one Fetch response.

    Attributes:
        batches: batches that are committed now, in order.
        snapshot: the log begins after the read position: load this KRaft snapshot instead.
        rewritten: records that were applied are not in this log: everything must be read again, from ``snapshot`` on
            if there is one.
        error: Kafka's error code, 0 for none.
        corrupt: a batch at ``end`` has an invalid checksum; it was left out, to be fetched again.
    """

    batches: tuple[EncodedBatch, ...] = ()
    snapshot: LogEnd | None = None
    rewritten: bool = False
    error: int = NONE
    corrupt: bool = False


class Position:
    """The read position.

    Invariants: ``applied.offset <= end.offset``, and ``_held`` holds exactly the batches between the two, in order.
    A batch is released only when all of it is below the high watermark, so ``applied`` never has to be taken back
    unless the quorum lost committed records. The high watermark may decrease with a new leader; released batches stay.

    Attributes:
        applied: end of the batches that were released as committed.
        end: end of the batches that were received; the offset of the next Fetch.
        high_watermark: end of the committed log in the last response; -1 while unknown.
    """

    def __init__(self, applied: LogEnd = START) -> None:
        self.applied = applied
        self.end = applied
        self.high_watermark = UNKNOWN
        self._held: deque[EncodedBatch] = deque()
        self._suspect: int | None = None

    @property
    def is_caught_up(self) -> bool:
        """True if everything that the last response reported as committed was released."""
        return UNKNOWN < self.high_watermark <= self.applied.offset

    @property
    def is_holding(self) -> bool:
        """True if records were received that are not committed yet."""
        return bool(self._held)

    def receive(self, response: FetchResponseFields) -> FetchResult:
        """Process one response."""
        if response.error:
            return FetchResult(error=response.error)
        if response.snapshot is not None:
            # Of the same log the snapshot would be newer than what was read, because the log begins after that.
            return FetchResult(snapshot=response.snapshot, rewritten=response.snapshot.offset < self.applied.offset)
        if response.diverging is not None:
            return self._truncate(response.diverging)
        corrupt = self._hold(response.records)
        self.high_watermark = response.high_watermark
        return FetchResult(batches=self._release(), corrupt=corrupt)

    def restart(self, at: LogEnd) -> None:
        """Continue at the end of a KRaft snapshot, or at the start of the log."""
        self.applied = self.end = at
        self.high_watermark = UNKNOWN
        self._held.clear()

    def _hold(self, data: bytes) -> bool:
        """Hold the new batches; return whether a corrupt one must be fetched again.

        Only a batch that is corrupt twice is corrupt in the log itself. It is accepted then, and decodes to an
        undecodable record, because the position could never pass it otherwise.
        """
        for batch in split(data):
            if batch.last_offset < self.end.offset:  # a response begins with the batch that contains the fetch offset
                continue
            if not is_intact(batch) and self._suspect != batch.base_offset:
                self._suspect = batch.base_offset
                return True
            self._held.append(batch)
            self.end = LogEnd(batch.last_offset + 1, batch.epoch)
        return False

    def _release(self) -> tuple[EncodedBatch, ...]:
        released = []
        while self._held and self._held[0].last_offset < self.high_watermark:
            batch = self._held.popleft()
            self.applied = LogEnd(batch.last_offset + 1, batch.epoch)
            released.append(batch)
        return tuple(released)

    def _truncate(self, diverging: LogEnd) -> FetchResult:
        """Drop the held batches that the leader does not have.

        With nothing held, the divergence is below ``applied``: committed records were lost (or the log was recreated),
        so reading starts over.
        """
        if not self._held:
            self.restart(START)
            return FetchResult(rewritten=True)
        while self._held and (self._held[-1].epoch > diverging.epoch or self._held[-1].last_offset >= diverging.offset):
            self._held.pop()
        last = self._held[-1] if self._held else None
        self.end = self.applied if last is None else LogEnd(last.last_offset + 1, last.epoch)
        return FetchResult()


LONG_POLL_MS: Final = 500
_FETCH_SECONDS: Final = 5.0
_SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
_COMMIT_MICROS: Final = 5_000_000  # a commit takes milliseconds; controller.quorum.fetch.timeout.ms is 2 s
_REFUSALS: Final = 3  # of a KRaft snapshot in turn: one may have been deleted meanwhile
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_INCONSISTENT_CLUSTER_ID: Final = 104
_FORBIDDEN: Final = frozenset({CLUSTER_AUTHORIZATION_FAILED, _TOPIC_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class Progress:
    """The result of one poll.

    Attributes:
        batches: newly committed batches, in log order.
        snapshot: replaces everything read before.
        rewritten: what was read before is no longer in this log; it is read again, before the snapshot if there is one.
    """

    batches: tuple[RecordBatch, ...] = ()
    snapshot: LoadedSnapshot | None = None
    rewritten: bool = False


NOTHING: Final = Progress()


class Tail:
    """Reads the log from the active controller, across failovers."""

    def __init__(  # noqa: PLR0913 - what the network needs, and what tests replace
        self,
        bootstrap: Bootstrap,
        dial: Dial,
        *,
        cluster_id: ClusterId,
        end: LogEnd = START,
        report: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
        timer: Callable[[], Micros] = monotonic,
    ) -> None:
        self.position = Position(end)
        self._timer, self._committed_at = timer, timer()
        self._controllers = Controllers(bootstrap.controllers.by_node)
        self._bootstrap, self._dial = bootstrap, dial
        self._cluster_id = cluster_id
        self._report, self._pause = report, pause
        self._connection: Connection | None = None
        self._is_serving = False
        self._last_error = ""
        self._snapshot_refusals = 0
        self._unread: deque[Progress] = deque()

    @property
    def is_serving(self) -> bool:
        """True if the last Fetch was answered by a leader that commits what it writes."""
        return self._is_serving

    def connect(self) -> None:
        """Poll until a controller responds as the leader; the next :meth:`poll` returns what was read meanwhile.

        Raises:
            ConnectionRefused: as in :meth:`poll`.
        """
        while not self._is_serving:
            self._unread.append(self.poll())

    def poll(self) -> Progress:
        """Send one Fetch and wait up to half a second for new records; after an error pause and return nothing.

        Raises:
            ConnectionRefused: neither the brokers nor any controller can be reached at the moment.
            ServiceRefused: reading the log is not authorised; the sentence names the permission.
        """
        if self._is_serving and self._unread:
            return self._unread.popleft()
        if self._controllers.are_exhausted:
            self._discover()
        try:
            return self._fetch()
        except ServiceRefused:
            self.close()
            raise
        except ConnectionRefused as error:
            if self._connection is None:
                self._controllers.unreachable()
            else:
                self._controllers.disconnected()
            self._disconnect(str(error))
            return NOTHING

    def snapshot_after(self, offset: int) -> LoadedSnapshot | None:
        """Load the newest KRaft snapshot if it ends after an offset, and continue behind it; None if there is none yet.

        A Fetch from the start of the log returns the id of the newest snapshot, if there is one.
        """
        connection = self._connection
        if connection is None:
            return None
        try:
            response = connection.call(self._request(connection, START), FetchResponse, messages.read_fetch)
            if response.error or response.snapshot is None or response.snapshot.offset <= offset:
                return None
            return self._load(connection, response.snapshot)
        except ConnectionRefused as error:
            self._controllers.disconnected()
            self._disconnect(str(error))
            return None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _discover(self) -> None:
        """Read leader and controllers from the brokers; raise when all known controllers had failed before."""
        had_failed = self._controllers.failures > 0
        quorum: Quorum | None = None
        try:
            if not self._controllers.try_fixed():
                quorum = self._bootstrap.quorum(with_addresses=True)
                self._controllers.learn(quorum)
            elif had_failed:
                with suppress(ConnectionRefused):
                    quorum = self._bootstrap.quorum()
        except ConnectionRefused:
            self._pause(LONGEST_PAUSE)
            raise
        finally:
            self._controllers.failures = (
                0  # controllers may respond while every broker is down, so they are tried again
            )
        if had_failed:
            who = self._controllers.who_leads(quorum)
            raise ConnectionRefused(f"no controller serves the metadata log: {self._last_error}{who}")

    def _fetch(self) -> Progress:
        connection, applied = self._connection or self._connect(), self.position.applied
        response = connection.call(self._request(connection, self.position.end), FetchResponse, messages.read_fetch)
        result = self.position.receive(response)
        if result.error:
            self._refused(response, connection)
            return NOTHING
        if self.position.applied != applied or not self.position.is_holding:
            self._committed_at = self._timer()
        elif self._timer() - self._committed_at > _COMMIT_MICROS:
            return self._without_majority(connection)
        self._controllers.answered(response)
        loaded = None if result.snapshot is None else self._load(connection, result.snapshot)
        if self._snapshot_refusals < _REFUSALS:
            self._served(connection)
        if result.corrupt:
            self._disconnect(f"{connection.address} sent a corrupt batch after offset {self.position.end.offset}")
        return Progress(tuple(map(decode, result.batches)), loaded, result.rewritten)

    def _connect(self) -> Connection:
        connection = self._dial(self._controllers.address, response_seconds=_FETCH_SECONDS)
        self._connection = connection
        if connection.newest(FetchRequest.API_KEY, messages.FETCH_NEWEST, "Fetch") < messages.FETCH_OLDEST:
            raise ServiceRefused(f"{connection.address} is too old: it does not support Fetch {messages.FETCH_OLDEST}")
        return connection

    def _request(self, connection: Connection, end: LogEnd) -> Any:  # noqa: ANN401 - kafka-python's messages ship no types
        return messages.fetch_request(
            connection.newest(FetchRequest.API_KEY, messages.FETCH_NEWEST),
            cluster_id=self._cluster_id,
            leader_epoch=self._controllers.epoch,
            end=end,
            high_watermark=self.position.high_watermark,
            wait_ms=LONG_POLL_MS,
        )

    def _served(self, connection: Connection) -> None:
        self._controllers.served()
        if not self._is_serving:
            self._is_serving = True
            self._report(
                f"reading the metadata log from controller {self._controllers.leader} at {connection.address}, "
                f"epoch {self._controllers.epoch}"
            )

    def _without_majority(self, connection: Connection) -> Progress:
        """Leave a leader that commits nothing: it has no majority, and before Kafka 3.7 it may answer on for ever.

        Since then it resigns (KAFKA-15489). What another leader commits meanwhile is not in its log.
        """
        self._controllers.unreachable()
        self._disconnect(f"{connection.address} leads the metadata quorum and commits nothing: it has no majority")
        return NOTHING

    def _refused(self, response: messages.FetchResponseFields, connection: Connection) -> None:
        if response.error in _FORBIDDEN:
            raise PermissionDenied(CLUSTER_ACTION, self._bootstrap.controllers.grantee)
        misled = self._misled(connection) if self._controllers.is_misled(response) else ""
        self._controllers.refused(response)
        error = f"{connection.address} responds with {for_code(response.error).message}"
        if response.error == _INCONSISTENT_CLUSTER_ID:
            error = (
                f"{connection.address} is a controller of another cluster than {self._cluster_id}: check its address; "
                "if the cluster was rebuilt, remove the checkpoint of the metadata log, and start the collector again"
            )
        self._disconnect(misled or error)

    def _misled(self, connection: Connection) -> str:
        """Say why the target is named as the leader, and says that it does not lead: who answers decides."""
        target, at = self._controllers.target, connection.address
        try:
            is_meant = responder(connection, NodeIdentity(Role.CONTROLLER, target, self._cluster_id)).is_meant
        except ConnectionRefused:
            is_meant = None
        if is_meant is False:
            return f"the address of controller {target}, {at}, leads to another one"
        resigned = f"controller {target} at {at} leads no longer, and no other one leads so far"
        return resigned if is_meant else f"{resigned}, or its address leads to another one"

    def _disconnect(self, error: str) -> None:
        """Close the connection, report it once, and pause with backoff: no controller is polled in a hot loop."""
        self.close()
        self._last_error = error
        if self._is_serving:
            self._is_serving = False
            self._report(f"lost the metadata log: {error}; looking for the leader")
        self._pause(min(LONGEST_PAUSE, _SHORTEST_PAUSE * 2**self._controllers.failures))

    def _load(self, connection: Connection, end: LogEnd) -> LoadedSnapshot | None:
        """Fetch a KRaft snapshot; None if it cannot be had, which is reported when it lasts.

        Invariant: the position moves to the end of the snapshot only when all of it has been read, so a connection
        that breaks in the middle leaves the position where the next Fetch returns a snapshot id again.
        """
        epoch = self._controllers.epoch
        try:
            data = messages.fetch(connection, cluster_id=self._cluster_id, leader_epoch=epoch, snapshot=end)
        except ConnectionRefused as error:  # Kafka announces the bytes of a file that was cut off, and never sends them
            self._count_refusals(_REFUSALS, connection, end, str(error))
            raise
        if isinstance(data, int):
            self._count_refusals(1, connection, end, for_code(data).message)
            self._pause(LONGEST_PAUSE)
            return None
        self._snapshot_refusals = 0
        self.position.restart(end)
        return messages.read(data, end, Leader(self._controllers.leader, epoch))

    def _count_refusals(self, count: int, connection: Connection, end: LogEnd, why: str) -> None:
        before, self._snapshot_refusals = self._snapshot_refusals, self._snapshot_refusals + count
        if before < _REFUSALS <= self._snapshot_refusals:
            self._is_serving = False
            self._report(
                f"{connection.address} does not give its KRaft snapshot at offset {end.offset} ({why}); trying again"
            )
