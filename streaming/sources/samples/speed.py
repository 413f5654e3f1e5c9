"""Response times of brokers, and the pairs that are behind in replication: what a slow broker is recognised by.

Each is asked for the offsets of no partition, a few times in a round. That passes its network threads, its request
queue and its handlers, as what clients send does, and touches no log: so the time does not grow with the partitions
that a broker leads, and brokers can be compared. It is measured around the request, so what waits here for its turn on
the connection is not in it. The requests are spread over the round, so that a broker that stands still most of the time
does not look fast in between; their median leaves out a single pause, ours or the broker's.

How long a broker takes to append to its log is not seen so; where its agent is scraped, that is added.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import speeds_in_block
from streaming.contracts.samples import BrokerSpeedObserved
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.protocol.offset_messages import API_KEY, HIGH_WATERMARK, NEWEST, list_offsets
from streaming.sources.samples.kind import AnswerContent
from streaming.sources.samples.replication_pairs import PairCounts, ReplicationPairs
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.sources.append_times import AppendTimes
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.kind import Ask, BrokerAnswer
    from streaming.sources.samples.offsets import LogEnds, OffsetsKind

KIND: Final = "speed"
REQUESTS: Final = 5
"""Requests of one round; a broker that takes longer than until the next one is asked less often."""
_LONGEST_MUTED_SECONDS: Final = 2.0  # by default a request quota keeps a connection for a second at most
_MARGIN_SECONDS: Final = 0.05  # until a broker reads again
_ANSWERS_FIRST_SINCE: Final = 3  # older brokers hold back the response instead (KIP-219)


def response_micros(connection: Connection) -> int | None:
    """Return how long a broker takes to respond; None where it does not show that.

    It does not while a quota keeps it from reading what we send (KIP-219). That is waited for, unless it takes long.

    Raises:
        ConnectionRefused: it does not respond.
    """
    muted = connection.muted_until - time.monotonic()
    if muted > _LONGEST_MUTED_SECONDS:
        return None
    if muted > 0:
        time.sleep(muted + _MARGIN_SECONDS)
    began = monotonic()
    list_offsets(connection, HIGH_WATERMARK, {})
    micros = monotonic() - began
    is_held_back = (
        connection.newest(API_KEY, NEWEST) < _ANSWERS_FIRST_SINCE and connection.muted_until > time.monotonic()
    )
    return None if is_held_back else micros


class _Round(NamedTuple):
    """A round that is over: response times and those of appends in microseconds, and the pairs."""

    times: dict[BrokerId, list[int]]
    pairs: Mapping[BrokerId, PairCounts]
    append_micros: Mapping[BrokerId, int]


class SpeedKind:
    """Asks every broker, and reports a round with the first answer of the next one; see :class:`kind.Kind`.

    Args:
        period: of a round; microseconds. No shorter than that of ``offsets``.
        offsets: reads the log positions.
        append_times: what agents say, if any are scraped.
    """

    names: Sequence[str] = (KIND,)

    def __init__(self, period: Micros, offsets: OffsetsKind, append_times: AppendTimes | None = None) -> None:
        self._due, self._offsets = Timer(Micros(period // REQUESTS)), offsets
        self._pairs, self._counts = ReplicationPairs(), dict[BrokerId, PairCounts]()
        self._compared: LogEnds | None = None
        self._append_times = append_times
        self._asked, self._times = 0, dict[BrokerId, list[int]]()
        self._ended: _Round | None = None

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return self._due.next_at

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask every broker when the time has come."""
        if not self._due.take_due(moment):
            return
        if self._asked == REQUESTS:
            self._compare(view)
            append_micros = {} if self._append_times is None else self._append_times.newest(moment)
            self._ended = _Round(self._times, self._counts, append_micros)
            self._asked, self._times = 0, {}
        self._asked += 1
        for broker in view.brokers:
            ask(KIND, broker, response_micros)

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:  # noqa: ARG002 - the interface
        """Note the time; return the last round if it is over and not returned yet, without who showed no time.

        It is not known since when another broker has answered in the place of one: nothing of its round counts.
        """
        if answer.refusal is None and answer.value is not None:
            self._times.setdefault(answer.broker, []).append(answer.value)
        ended, self._ended = self._ended, None
        if isinstance(answer.refusal, WrongNode):
            for times in (self._times, {} if ended is None else ended.times):
                times.pop(answer.broker, None)
        speeds = [] if ended is None else [
            BrokerSpeedObserved(
                **envelope,
                broker=broker,
                response_micros=round(median(times)),
                slowest_response_micros=max(times),
                **ended.pairs[broker]._asdict(),
                append_micros=ended.append_micros.get(broker),
            )
            for broker, times in ended.times.items()
            if broker in ended.pairs
        ]  # fmt: skip
        return AnswerContent([speeds_in_block(speeds)] if speeds else [], answer.refusal)

    def _compare(self, view: ClusterView) -> None:
        """Count the pairs, unless that was done with the newest positions."""
        ends = self._offsets.ends
        if ends is not self._compared:
            self._counts = self._pairs.take(view.brokers, view.topics, ends.leaders, ends.followers)
            self._compared = ends
