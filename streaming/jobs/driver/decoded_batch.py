"""The rows of a batch as observations in order, and the records that were refused. Knows Arrow, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow.compute as pc

from streaming.bus.frames import BusFrame, Damaged
from streaming.changes.fold import UnchangedRun, merged
from streaming.changes.sources import MAX_AHEAD, is_ahead
from streaming.contracts.blocks import PartitionsObserved
from streaming.contracts.codec import decode
from streaming.contracts.observations import SnapshotEnd
from streaming.contracts.words import utc_text
from streaming.delta.quarantine import Refused
from streaming.errors import Quarantined
from streaming.jobs.applied import MICROS, now
from streaming.jobs.driver.repeated_blocks import with_digest
from streaming.jobs.streams.left_out_blocks import LeftOut, RepeatedRun, run_with

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import pyarrow as pa

    from streaming.contracts.observations import Channel, Observation
    from streaming.jobs.driver.repeated_blocks import DecodedBlock, RepeatedBlocks

ReadLog = Callable[[str, int, int, int | None], Iterator[BusFrame | Damaged]]
"""Reads a log of the bus, by its source, from a position to another one; its log id is this one, if it has one."""


class AppliedPositions(Protocol):
    """How far each source was applied."""

    def position(self, source: str) -> int:
        """Return the position of the last applied observation of a source, -1 for none."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch after decoding.

    Attributes:
        observations: in order; an ``UnchangedRun`` replaces consecutive ones that repeat the state.
        refused: unparseable records.
        positions: newest position of each source in the batch.
        log_ids: of the logs that have one, where those positions are.
        blocks: those that were decoded, to be remembered once they are applied.
    """

    observations: tuple[Observation, ...]
    refused: tuple[Refused, ...]
    positions: Mapping[str, int]
    log_ids: Mapping[str, int]
    blocks: tuple[DecodedBlock, ...] = ()

    @property
    def count(self) -> int:
        """How many observations the batch holds, those within unchanged runs included."""
        return sum(
            each.sequence - each.first_sequence + 1 if isinstance(each, UnchangedRun) else 1
            for each in self.observations
        )


def decode_batch(
    rows: pa.Table,
    applied: AppliedPositions,
    channel: Channel,
    repeated: RepeatedBlocks | None = None,
    read: ReadLog | None = None,
) -> DecodedBatch:
    """Decode the rows of a batch that were not applied yet, merged by time; each source keeps its own order.

    Args:
        rows: as in ``schemas.bus_schema``.
        applied: what was applied already.
        channel: where they were read; an observation of another channel is refused.
        repeated: blocks that repeat the state become an ``UnchangedRun``. None: everything is decoded.
        read: reads blocks that a worker left out, and that must be decoded.

    Raises:
        NewerFormat: a newer program wrote one of the rows.
    """
    fresh = fresh_rows(rows, applied)
    pass_over = partial(_BatchReading, channel, repeated, _Unapplied(applied, read))
    reading = pass_over(set()).read(fresh)
    # A block was skipped because it repeats the state, but another row of the batch may change the same topic: their
    # order decides, so both must be decoded. Each pass decodes more rows than the one before, so this ends.
    while reading.has_doubts():
        reading = pass_over(reading.doubtful).read(fresh)
    return DecodedBatch(
        tuple(merged(reading.observed)),
        tuple(reading.refused),
        newest_positions(fresh),
        newest_log_ids(fresh),
        tuple(reading.blocks),
    )


def newest_positions(rows: pa.Table) -> dict[str, int]:
    """Return the newest position of each source."""
    newest = rows.group_by("source").aggregate([("position", "max")])
    return dict(zip(newest["source"].to_pylist(), newest["position_max"].to_pylist(), strict=True))


def newest_log_ids(rows: pa.Table) -> dict[str, int]:
    """Return the log id at the newest position of each source, where it has one."""
    log_ids: dict[str, int] = {}
    for source, position in newest_positions(rows).items():
        at_newest = pc.and_(pc.equal(rows["source"], source), pc.equal(rows["position"], position))
        log_id = rows["log_id"].filter(at_newest)[0].as_py()
        if log_id is not None:
            log_ids[source] = log_id
    return log_ids


def decode_row(payload: bytes, damage: str | None, channel: Channel) -> Observation:
    """Decode one row.

    A clock that is far ahead would make what all other sources report look old, so it is refused here, by the job's.

    Raises:
        Quarantined: with the reason why it is no observation of this channel.
        NewerFormat: a newer program wrote it; nothing of its batch may be applied.
    """
    if damage is not None:
        raise Quarantined(damage)
    observed = decode(payload)
    if observed.channel is not channel:
        raise Quarantined(f"{observed.kind} does not belong on the channel {channel}")
    if is_ahead(observed, now()):
        # The reason names no time of the job: a batch that comes again refuses the same records with the same words.
        raise Quarantined(
            f"collected_at is {utc_text(observed.collected_at)}, more than {MAX_AHEAD // MICROS} s ahead of the job's "
            f"clock: set the clock of the machine of {observed.source}"
        )
    return observed


def fresh_rows(rows: pa.Table, applied: AppliedPositions) -> pa.Table:
    """Return the rows of a batch that were not applied yet.

    A batch may come again, cut differently, after a crash or with a new checkpoint: positions alone say what is new.
    """
    mask = None
    for source in pc.unique(rows["source"]).to_pylist():
        newer = pc.and_(pc.equal(rows["source"], source), pc.greater(rows["position"], applied.position(source)))
        mask = newer if mask is None else pc.or_(mask, newer)
    return rows if mask is None or pc.all(mask).as_py() else rows.filter(mask)


def _logs(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each source, in the order of its log; payloads are copied only where the order is wrong."""
    sources = sorted(pc.unique(rows["source"]).to_pylist())
    for source in sources:
        log = rows if len(sources) == 1 else rows.filter(pc.equal(rows["source"], source))
        positions = log["position"].combine_chunks()
        is_sorted = pc.all(pc.less_equal(positions[:-1], positions[1:])).as_py()
        yield source, log if is_sorted is not False else log.sort_by("position")


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """Reads blocks that a worker left out."""

    applied: AppliedPositions
    read: ReadLog | None

    def rows(self, source: str, left_out: LeftOut, log_id: int | None) -> Iterator[tuple[int, bytes, str | None]]:
        """Yield the rows of those that were not applied yet."""
        if self.read is None:
            raise AssertionError(f"blocks of {source} were left out, and nothing can read them")
        for item in self.read(source, left_out.start, left_out.end, log_id):
            if item.position > self.applied.position(source):
                yield item[0], item[1], item.reason if isinstance(item, Damaged) else None

    def has_all_of(self, source: str, left_out: LeftOut) -> bool:
        """Return whether none of them was applied yet: a batch that comes again may be cut differently."""
        return left_out.start > self.applied.position(source)


class _BatchReading:
    """One pass over the rows of a batch."""

    def __init__(
        self, channel: Channel, repeated: RepeatedBlocks | None, unapplied: _Unapplied, doubtful: set[bytes]
    ) -> None:
        self._channel, self._repeated, self._unapplied = channel, repeated, unapplied
        self._certain: Container[bytes] = frozenset() if repeated is None else repeated.but(doubtful)
        self.doubtful = doubtful
        self.observed: list[tuple[str, int, Observation]] = []
        self.refused: list[Refused] = []
        self.blocks: list[DecodedBlock] = []
        self._runs: list[RepeatedRun] = []

    def read(self, rows: pa.Table) -> _BatchReading:
        """Decode rows, source by source."""
        for source, log in _logs(rows):
            self._read_log(source, log)
        return self

    def _read_log(self, source: str, rows: pa.Table) -> None:
        run: RepeatedRun | None = None
        for row in self._rows(source, rows):
            before, run = run, row if isinstance(row, RepeatedRun) else self._run_with(run, row)
            if before is not None and before is not run:
                self._end(source, before)
            if run is None and not isinstance(row, RepeatedRun):
                self._decode(source, *row)
        if run is not None:
            self._end(source, run)

    def _rows(self, source: str, rows: pa.Table) -> Iterator[tuple[int, bytes, str | None] | RepeatedRun]:
        """Yield position, payload and damage of each row; of blocks that were left out the run, or each of them."""
        columns = [rows[name].to_pylist() for name in ("position", "payload", "damage", "left_out", "log_id")]
        for position, payload, damage, blocks, log_id in zip(*columns, strict=True):
            if blocks is None:
                yield position, payload, damage
                continue
            some = LeftOut(position, payload, **blocks)
            row = self._as_left_out(source, some)
            if row is not None:
                yield row
            else:
                yield from self._unapplied.rows(source, some, log_id)

    def _as_left_out(self, source: str, some: LeftOut) -> tuple[int, bytes, str | None] | RepeatedRun | None:
        """Return the run that a worker left out, or the end of a report; None if it must be read from the bus."""
        if self._repeated is None or not self._unapplied.has_all_of(source, some):
            return None
        end = self._repeated.end_left_out(some)
        if end is not None:
            return some.position, end, None
        run = self._repeated.run_left_out(some, self._certain)
        return None if run is None or is_ahead(run.envelope, now()) else run

    def has_doubts(self) -> bool:
        """Return whether a block was skipped that another observation of the batch may have turned into a change."""
        return any(not self.doubtful.isdisjoint(run.digests) for run in self._runs)

    def _run_with(self, run: RepeatedRun | None, row: tuple[int, bytes, str | None]) -> RepeatedRun | None:
        """Return the run of repeated blocks that a row extends or begins; None if it must be decoded."""
        _, payload, damage = row
        longer = run_with(run, payload, self._certain) if self._repeated and damage is None else None
        return None if longer is None or is_ahead(longer.envelope, now()) else longer

    def _decode(self, source: str, position: int, payload: bytes, damage: str | None) -> None:
        try:
            observed = decode_row(payload, damage, self._channel)
        except Quarantined as reason:
            self.refused.append(Refused(source=source, position=position, reason=str(reason), raw=payload))
            return
        self._add(source, observed)
        if self._repeated is None:
            return
        self.doubtful |= self._repeated.at_risk(observed)
        if isinstance(observed, SnapshotEnd):
            self._repeated.listed(observed, payload)
        if isinstance(observed, PartitionsObserved) and (block := with_digest(observed, payload)) is not None:
            self.blocks.append(block)

    def _end(self, source: str, run: RepeatedRun) -> None:
        """Add the run in place of the blocks that it skipped."""
        self._runs.append(run)
        self._add(source, run.as_observation())

    def _add(self, source: str, observed: Observation) -> None:
        self.observed.append((source, observed.occurred_not_after, observed))
