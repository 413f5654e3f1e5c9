"""Producers that a log knows: sequences, epochs, open and aborted transactions (``ProducerStateManager``).

It is a function of the log: every replica keeps its own, followers from what they fetch, and a truncated log has it
computed again. Departs from Kafka: a rebuild reads the batches that are left; Kafka would also find older producers in
the snapshots of segments that retention has deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.constants import Error
from streaming.model.storage.batch import NO_PRODUCER, Batch, Marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCHES_REMEMBERED: Final = 5
NO_SEQUENCE: Final = -1
_SEQUENCES: Final = 1 << 31


def advance_sequence(sequence: int, count: int = 1) -> int:
    """Count on; 0 follows 2147483647.

    >>> advance_sequence(-1), advance_sequence(2_147_483_647), advance_sequence(2_147_483_646, 3)
    (0, 0, 1)
    """
    return (sequence + count) % _SEQUENCES


class WrittenBatch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class ProducerEntry(NamedTuple):
    """One producer in one partition.

    Attributes:
        epoch: newest epoch of its batches and markers; never falls, which fences older sessions of the producer.
        batches: the last five of that epoch. Invariant: their sequences follow one another without a gap.
        last_ms: when it wrote last.
        open_since: first offset of its open transaction; the last stable offset of the log does not pass it.
        coordinator_epoch: newest leader epoch of the coordinator that sent a marker.
    """

    epoch: int = -1
    batches: tuple[WrittenBatch, ...] = ()
    last_ms: int = 0
    open_since: int | None = None
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """Sequence of its newest record; -1 where a marker began the epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class AbortedTransaction(NamedTuple):
    """Records ``[first_offset, marker_offset)`` of this producer must not be read (``AbortedTxn``)."""

    producer_id: int
    first_offset: int
    marker_offset: int


def last_sequence_of(batch: Batch) -> int:
    """Give the sequence of its last record."""
    return advance_sequence(batch.base_sequence, batch.size - 1)


def duplicate_of(entry: ProducerEntry, batch: Batch) -> WrittenBatch | None:
    """Find the batch among the last five that this one repeats; older ones are not recognised."""
    if batch.producer_epoch != entry.epoch:
        return None
    sequences = (batch.base_sequence, last_sequence_of(batch))
    return next((batch for batch in entry.batches if sequences == (batch.first_sequence, batch.last_sequence)), None)


def refusal(entry: ProducerEntry | None, batch: Batch) -> Error:
    """Tell why a client's batch may not follow what its producer wrote before.

    Without an entry anything is accepted: the state may have expired, or been truncated away.
    """
    if entry is None:
        return Error.NONE
    if batch.producer_epoch < entry.epoch:
        return Error.INVALID_PRODUCER_EPOCH
    expected = 0 if batch.producer_epoch > entry.epoch else advance_sequence(entry.last_sequence)
    if batch.base_sequence != expected:
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry.open_since is not None and not batch.is_transactional:
        return Error.INVALID_TXN_STATE
    return Error.NONE


def marker_refusal(entry: ProducerEntry | None, producer_epoch: int, coordinator_epoch: int) -> Error:
    """Tell why a transaction marker may not be written: an older producer epoch, or an older coordinator."""
    if entry is None:
        return Error.NONE
    if producer_epoch < entry.epoch:
        return Error.INVALID_PRODUCER_EPOCH
    if coordinator_epoch < entry.coordinator_epoch:
        return Error.TRANSACTION_COORDINATOR_FENCED
    return Error.NONE


class ProducerState:
    """The producers of one log."""

    __slots__ = ("_completed", "_open", "aborted", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        self._completed: list[tuple[int, int]] = []

    def entry_of(self, producer_id: int, now: int, expiration_ms: int) -> ProducerEntry | None:
        """Give what is known of a producer, unless it expired; an open transaction keeps it.

        Departs from Kafka: it expires on time, not at the next check (each ten minutes).
        """
        entry = self.entries.get(producer_id)
        if entry is not None and entry.open_since is None and now - entry.last_ms >= expiration_ms:
            del self.entries[producer_id]
            return None
        return entry

    def written(self, batch: Batch) -> None:
        """Take in a batch that stands in the log now."""
        if batch.producer_id == NO_PRODUCER:
            return
        entry = self.entries.get(batch.producer_id, ProducerEntry())
        if batch.marker is None:
            self._take_records(entry, batch)
        else:
            self._take_marker(entry, batch, batch.marker)

    def _take_records(self, entry: ProducerEntry, batch: Batch) -> None:
        before = entry.batches if batch.producer_epoch == entry.epoch else ()
        written = WrittenBatch(batch.base_sequence, last_sequence_of(batch), batch.base_offset, batch.last_offset)
        entry = entry._replace(
            epoch=batch.producer_epoch, batches=(*before, written)[-BATCHES_REMEMBERED:], last_ms=batch.timestamp_ms
        )
        if batch.is_transactional and entry.open_since is None:
            entry = entry._replace(open_since=batch.base_offset)
            self._open[batch.producer_id] = batch.base_offset
        self.entries[batch.producer_id] = entry

    def _take_marker(self, entry: ProducerEntry, batch: Batch, marker: Marker) -> None:
        first = self._open.pop(batch.producer_id, None)
        if first is not None:
            self._completed.append((first, batch.base_offset))
            if marker is Marker.ABORT:
                self.aborted.append(AbortedTransaction(batch.producer_id, first, batch.base_offset))
        self.entries[batch.producer_id] = ProducerEntry(
            epoch=batch.producer_epoch,
            batches=entry.batches if batch.producer_epoch == entry.epoch else (),
            last_ms=batch.timestamp_ms,
            coordinator_epoch=batch.coordinator_epoch,
        )

    def rebuild(self, batches: Iterable[Batch]) -> None:
        """Compute everything again from a log that was truncated."""
        self.entries.clear()
        self.aborted.clear()
        self._open.clear()
        self._completed.clear()
        for batch in batches:
            self.written(batch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Give the offset below which every transaction is decided, and its marker committed."""
        if not self._open and not self._completed:
            return high_watermark
        self._completed = [transaction for transaction in self._completed if transaction[1] >= high_watermark]
        undecided = (first for first, _ in self._completed)
        return min((high_watermark, *self._open.values(), *undecided))

    def aborted_between(self, offset: int, end: int) -> tuple[AbortedTransaction, ...]:
        """Give the aborted transactions that have records in ``[offset, end)``."""
        return tuple(
            aborted for aborted in self.aborted if aborted.first_offset < end and aborted.marker_offset >= offset
        )

    def oldest_open(self) -> ProducerEntry | None:
        """Give the producer whose open transaction began first."""
        if not self._open:
            return None
        return self.entries[min(self._open, key=self._open.__getitem__)]

    def open_transactions(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Give the producers that have a transaction open here, by producer id."""
        yield from ((producer_id, self.entries[producer_id]) for producer_id in self._open)
