"""ListTransactions and DescribeTransactions 0 (KIP-664, Kafka 3.0): what a coordinator has open, in two requests.

Kafka lists only what may be described, and does not say that it left something out. So one transactional id is
described, too, that does not exist: where that is denied, others may be.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.sources.protocol.primitives import INT16, INT32
from streaming.sources.protocol.raw import RawRequest, RawResponse, compact_array, compact_string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader

    TopicPartition = tuple[str, int]

LIST: Final = 66
DESCRIBE: Final = 65
PROBED: Final = "__isrwatch_no_transaction"
UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of a transaction that is open, or whose end is not written to all its partitions yet."""
_DENIED: Final = 53  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_FOUND: Final = 105  # it has expired since it was listed
_NUMBERS: Final = struct.Struct(">iqqh")  # timeout, start, producer id and epoch
_MICROS_PER_MS: Final = 1000


class OpenTransaction(NamedTuple):
    """A transaction that its coordinator has not ended yet.

    Attributes:
        transactional_id: of its producer.
        state: as Kafka names it, one of ``UNDECIDED``.
        timeout_ms: how long it may be open.
        started_at: when it began, by the coordinator's clock; None while it has no partition.
        producer_id, producer_epoch: who writes it.
        partitions: those that are in it, and have no marker of its end yet.
    """

    transactional_id: str
    state: str
    timeout_ms: int
    started_at: Micros | None
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class OpenTransactions(NamedTuple):
    """What a coordinator answered.

    Attributes:
        transactions: those that it has open.
        is_listed: whether it said what it has; otherwise it is no coordinator (yet).
        is_complete: whether these are all.
        is_denied: whether there are transactional ids that may not be described.
    """

    transactions: tuple[OpenTransaction, ...] = ()
    is_listed: bool = False
    is_complete: bool = False
    is_denied: bool = False


def open_transactions(connection: Connection) -> OpenTransactions:
    """Ask one coordinator for its open transactions; older than Kafka 3.0 it returns none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(LIST, 0) < 0:
        return OpenTransactions()
    error, listed = RawResponse(_read_listed).value_of(connection, RawRequest(LIST, 0, _LISTED))
    described = RawResponse(_read_described).value_of(
        connection, RawRequest(DESCRIBE, 0, compact_array(map(compact_string, (PROBED, *listed))) + b"\0")
    )
    is_denied = any(failed == _DENIED for failed, _ in described)
    errors = {failed for failed, one in described if one.transactional_id != PROBED}
    return OpenTransactions(
        transactions=tuple(one for failed, one in described if not failed and one.state in UNDECIDED),
        is_listed=not error,
        is_complete=not error and not is_denied and errors <= {0, _NOT_FOUND},
        is_denied=is_denied,
    )


_LISTED: Final = compact_array(map(compact_string, UNDECIDED)) + compact_array(()) + b"\0"


def _read_listed(reader: ByteReader) -> tuple[int, tuple[str, ...]]:
    reader.number(INT32)  # the time for which the request was throttled
    error = reader.number(INT16)
    reader.array(reader.string)  # states that it does not know
    return error, reader.array(lambda: _transactional_id(reader)) or ()


def _transactional_id(reader: ByteReader) -> str:
    transactional_id = reader.string()
    reader.raw(8)  # the producer id, which is described, too
    reader.string()
    reader.tags()
    return transactional_id


def _read_described(reader: ByteReader) -> Sequence[tuple[int, OpenTransaction]]:
    reader.number(INT32)  # as above
    return reader.array(lambda: _transaction(reader)) or ()


def _transaction(reader: ByteReader) -> tuple[int, OpenTransaction]:
    error, transactional_id, state = reader.number(INT16), reader.string(), reader.string()
    timeout_ms, started_ms, producer_id, producer_epoch = reader.structure(_NUMBERS)
    topics = reader.array(lambda: _partitions(reader)) or ()
    reader.tags()
    return error, OpenTransaction(
        transactional_id=transactional_id,
        state=state,
        timeout_ms=timeout_ms,
        started_at=Micros(started_ms * _MICROS_PER_MS) if started_ms >= 0 else None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=tuple(chain.from_iterable(topics)),
    )


def _partitions(reader: ByteReader) -> list[TopicPartition]:
    topic, numbers = reader.string(), reader.numbers("i") or ()
    reader.tags()
    return [(topic, number) for number in numbers]
