"""How fast each broker responds, and with whom it is behind in replication: what a slow broker is recognised by.

Each is asked for the offsets of no partition, a few times in a row. That passes its network threads, its request queue
and its handlers, as what clients send does, and touches no log: so the time does not grow with the partitions that a
broker leads, and brokers can be compared. It is measured around each request, so what waits here for its turn on the
connection is not in it. The median of a round leaves out a single pause, ours or the broker's; a pause that is longer
than ``ENOUGH_MICROS`` ends the round of that broker, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.sample_blocks import BrokerSpeedsObserved, speeds_in_block
from streaming.contracts.samples import BrokerSpeedObserved
from streaming.sources.replication_pairs import PairCounts, ReplicationPairs
from streaming.sources.samples.kind import Shown
from streaming.sources.samples.listed_offsets import HIGH_WATERMARK, list_offsets
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.admin_view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.broker_calls import BrokerAnswer
    from streaming.sources.samples.kind import Ask
    from streaming.sources.samples.offsets import OffsetsKind

KIND: Final = "speed"
REQUESTS: Final = 5
ENOUGH_MICROS: Final = 1_000_000


def response_times(connection: Connection) -> list[int]:
    """Return the response times of a few requests, in microseconds.

    Raises:
        ConnectionRefused: it does not respond.
    """
    times: list[int] = []
    while len(times) < REQUESTS and sum(times) < ENOUGH_MICROS:
        began = monotonic()
        list_offsets(connection, HIGH_WATERMARK, {})
        times.append(monotonic() - began)
    return times


@dataclass(slots=True)
class _Round:
    """What was asked of whom, and has been answered."""

    pairs: Mapping[BrokerId, PairCounts]
    unanswered: set[BrokerId]
    times: dict[BrokerId, list[int]] = field(default_factory=dict)

    def block(self, envelope: Mapping[str, Any]) -> BrokerSpeedsObserved:
        return speeds_in_block([
            BrokerSpeedObserved(
                **envelope,
                broker=broker,
                response_micros=round(median(times)),
                slowest_response_micros=max(times),
                **self.pairs[broker]._asdict(),
            )
            for broker, times in self.times.items()
        ])  # fmt: skip


class SpeedKind:
    """Asks every broker, and reports all of them at once; see :class:`kind.Kind`.

    A round ends with the last answer. If one is missing when the next round begins, with the first answer of that.
    It is put before what asks for log positions: nothing else is decoded here while the requests are on their way, and
    the positions are those of the whole round before.

    Args:
        period: microseconds.
        offsets: reads the log positions.
    """

    names: Sequence[str] = (KIND,)

    def __init__(self, period: Micros, offsets: OffsetsKind) -> None:
        self._due, self._offsets = Timer(period), offsets
        self._pairs = ReplicationPairs()
        self._round: _Round | None = None
        self._unfinished: _Round | None = None

    @property
    def next_at(self) -> Micros:
        """When it is due, by the monotonic clock."""
        return self._due.next_at

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask every broker when the time has come."""
        if not self._due.take_due(moment):
            return
        pairs = self._pairs.take(view.brokers, view.topics, self._offsets.leader_ends, self._offsets.follower_ends)
        self._unfinished = self._round
        self._round = _Round(pairs, {broker for broker in view.brokers if ask(KIND, broker, response_times)})

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> Shown:  # noqa: ARG002 - the interface
        """Return a round that is over; nothing while others have yet to answer."""
        now, ended = self._round, self._unfinished
        if now is not None:
            if answer.refusal is None and answer.broker in now.pairs:
                now.times[answer.broker] = answer.value
            now.unanswered.discard(answer.broker)
            if not now.unanswered:
                ended, self._round = now, None
        self._unfinished = None
        return Shown([ended.block(envelope)] if ended is not None and ended.times else [], answer.refusal)
