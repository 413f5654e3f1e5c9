"""One partition of a producer: what waits, what is in flight, and the sequence (``TxnPartitionEntry``).

Knows no broker and no network.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.model.errors import Error
from streaming.model.storage.producer_state import NO_SEQUENCE, advance_sequence

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.storage.batch import Batch


@dataclass(slots=True)
class Sent:
    """Records that an application sent together.

    Attributes:
        number: counts what its producer sent.
        attempts: how often it went to a leader.
        not_before: a retry waits until then.
        error: None while it is not decided; NONE once it is acknowledged.
        base_offset: where it stands, as far as the leader said.
        decided_ms: when it was decided.
    """

    number: int
    key: TopicPartition
    batch: Batch
    created_ms: int
    attempts: int = 0
    not_before: int = 0
    error: Error | None = None
    base_offset: int = -1
    decided_ms: int = -1

    @property
    def has_sequence(self) -> bool:
        """Whether it was sent with a sequence before, which a retry must keep."""
        return self.batch.base_sequence != NO_SEQUENCE


class PartitionQueue:
    """Batches in the order of sending. With a sequence, one that failed holds up those behind it until it is decided.

    Attributes:
        waiting: to be sent, or sent again.
        in_flight: sent and not answered.
        needs_epoch: a batch with a sequence was given up: the sequence is broken, and a new epoch must begin.
    """

    def __init__(self) -> None:
        self.waiting: list[Sent] = []
        self.in_flight: list[Sent] = []
        self.needs_epoch = False
        self._epoch = -1
        self._next_sequence = 0

    def has_ready(self, now: int) -> bool:
        """Return whether the first waiting batch may go: no retry may overtake an earlier batch with a sequence."""
        if not self.waiting or self.waiting[0].not_before > now or (self.needs_epoch and self.in_flight):
            return False
        return not (self.waiting[0].has_sequence and self.has_earlier(self.waiting[0]))

    def has_earlier(self, sent: Sent) -> bool:
        """Return whether a batch before this one is in flight or waits."""
        return any(batch.number < sent.number for batch in (*self.in_flight, *self.waiting))

    def take(self) -> Sent:
        """Take the first waiting batch into flight."""
        sent = self.waiting.pop(0)
        sent.attempts += 1
        self.in_flight.append(sent)
        return sent

    def begin_epoch(self, epoch: int) -> None:
        """Number everything anew from 0. Enabled while nothing is in flight."""
        self.needs_epoch = False
        self._epoch, self._next_sequence = epoch, 0
        for sent in self.waiting:
            sent.batch = sent.batch._replace(base_sequence=NO_SEQUENCE)

    def take_in_sequence(self, producer_id: int, producer_epoch: int) -> Sent:
        """Take the first waiting batch into flight, numbered.

        A newer epoch begins here once no batch of the older one is undecided.
        """
        if producer_epoch != self._epoch and not self.in_flight and not self.waiting[0].has_sequence:
            self.begin_epoch(producer_epoch)
        sent = self.take()
        if not sent.has_sequence:
            sent.batch = sent.batch._replace(
                producer_id=producer_id, producer_epoch=self._epoch, base_sequence=self._next_sequence
            )
            self._next_sequence = advance_sequence(self._next_sequence, sent.batch.size)
        return sent

    def put_back(self, sent: Sent, not_before: int) -> None:
        """It failed and is to be sent again: before everything, or in its place if it has a sequence."""
        self.in_flight.remove(sent)
        sent.not_before = not_before
        if sent.has_sequence:
            insort(self.waiting, sent, key=lambda batch: batch.number)
        else:
            self.waiting.insert(0, sent)

    def decide(self, now: int, sent: Sent, error: Error, base_offset: int = -1) -> None:
        """It is acknowledged, or given up."""
        (self.in_flight if sent in self.in_flight else self.waiting).remove(sent)
        sent.error, sent.base_offset, sent.decided_ms = error, base_offset, now
        if error is not Error.NONE and sent.has_sequence:
            self.needs_epoch = True

    def too_old(self, now: int, delivery_timeout_ms: int) -> list[Sent]:
        """Give what was not decided within ``delivery.timeout.ms``."""
        return [batch for batch in (*self.in_flight, *self.waiting) if now - batch.created_ms >= delivery_timeout_ms]
