"""The rows of a batch as ordered observations, and the refused records. Knows Arrow, no Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from streaming.bus.frames import BusFrame, DamagedRange
from streaming.changes.fold import UnchangedRun, merged
from streaming.changes.partitions import is_repeated, news
from streaming.changes.sources import MAX_AHEAD, is_ahead
from streaming.changes.state import ListedPartitions
from streaming.contracts.blocks import PartitionsBlock, PartitionsObserved, cut_block
from streaming.contracts.codec import decode, encode
from streaming.contracts.identifiers import NOWHERE, SECOND
from streaming.contracts.observations import Channel, Observation, PartitionObserved, SnapshotEnd, TopicRemoved
from streaming.contracts.words import utc_text
from streaming.delta.quarantine import RefusedRecord
from streaming.errors import InvalidObservation
from streaming.jobs.queries import now
from streaming.jobs.streams.left_out_blocks import (
    DigestPublisher,
    LeftOutBlocks,
    RepeatedRun,
    digest_of,
    new_run,
    run_with,
)
from streaming.movement import noted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import ReplicationState, TopicKey
    from streaming.contracts.identifiers import LogPosition

ReadLog = Callable[[str, int, int, int | None], Iterator[BusFrame | DamagedRange]]
"""Reads the log of a source on the bus between two positions; its segments must have the log id, if one is given."""
_Row = tuple[int, bytes, str | None, int | None]
"""Position, payload, damage and log id of a record."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch after decoding.

    Attributes:
        observations: in order; an ``UnchangedRun`` replaces consecutive ones that repeat the state.
        refused: unparseable records.
        positions: newest position of each source in the batch.
        log_ids: at those positions, of the logs that have one.
        blocks: the decoded blocks, to be remembered once they are applied.
    """

    observations: tuple[Observation, ...]
    refused: tuple[RefusedRecord, ...]
    positions: Mapping[str, int]
    log_ids: Mapping[str, int]
    blocks: tuple[DecodedBlock, ...] = ()

    @property
    def count(self) -> int:
        """Number of observations in the batch, those within unchanged runs included."""
        return sum(
            each.sequence - each.first_sequence + 1 if isinstance(each, UnchangedRun) else 1
            for each in self.observations
        )


def decode_batch(
    rows: pa.Table,
    applied: Mapping[str, LogPosition],
    repeated: RepeatedBlocks | None = None,
    read: ReadLog | None = None,
) -> DecodedBatch:
    """Decode the rows of a batch that were not applied yet, merged by time; each source keeps its own order.

    Args:
        rows: as in ``bus_source.SCHEMA``.
        applied: where the last applied record of each source is.
        repeated: blocks that repeat the state, which become an ``UnchangedRun``; None to decode everything.
        read: reads blocks that a worker left out but that must be decoded.

    Raises:
        NewerFormat: a newer program wrote one of the rows.
    """
    fresh = fresh_rows(rows, applied)
    pass_over = partial(_BatchReading, applied, repeated, read)
    reading = pass_over(set()).read(fresh)
    # A block was skipped because it repeats the state, but another row of the batch may change the same topic. Their
    # order matters, so both must be decoded. Each pass decodes more rows than the one before, so this ends.
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

    If the clock of a source is far ahead, everything that others report would look old, so its records are refused.

    Raises:
        InvalidObservation: it is not a valid observation of this channel; with the reason.
        NewerFormat: a newer program wrote it; nothing of its batch may be applied.
    """
    if damage is not None:
        raise InvalidObservation(damage)
    observed = decode(payload)
    if observed.channel is not channel:
        raise InvalidObservation(f"{observed.kind} does not belong on the channel {channel}")
    if is_ahead(observed, now()):
        # The reason contains no time of the job: a repeated batch must refuse the same records with the same words.
        raise InvalidObservation(
            f"collected_at is {utc_text(observed.collected_at)}, more than {MAX_AHEAD // SECOND} s ahead of the job's "
            f"clock: set the clock of the machine of {observed.source}"
        )
    return observed


def fresh_rows(rows: pa.Table, applied: Mapping[str, LogPosition]) -> pa.Table:
    """Return the rows of a batch that were not applied yet.

    After a crash or with a new checkpoint a batch is repeated, cut differently: only positions say what is new.
    """
    mask = None
    for source in pc.unique(rows["source"]).to_pylist():
        newer = pc.and_(
            pc.equal(rows["source"], source), pc.greater(rows["position"], applied.get(source, NOWHERE).position)
        )
        mask = newer if mask is None else pc.or_(mask, newer)
    return rows if mask is None or pc.all(mask).as_py() else rows.filter(mask)


def _logs(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each source, in the order of its log; payloads are copied only if the order is wrong."""
    sources = sorted(pc.unique(rows["source"]).to_pylist())
    for source in sources:
        log = rows if len(sources) == 1 else rows.filter(pc.equal(rows["source"], source))
        positions = log["position"].combine_chunks()
        is_sorted = pc.all(pc.less_equal(positions[:-1], positions[1:])).as_py()
        yield source, log if is_sorted is not False else log.sort_by("position")


class _BatchReading:
    """One pass over the rows of a batch."""

    def __init__(
        self,
        applied: Mapping[str, LogPosition],
        repeated: RepeatedBlocks | None,
        read: ReadLog | None,
        doubtful: set[bytes],
    ) -> None:
        self._applied, self._repeated, self._reread = applied, repeated, read
        self._certain: Container[bytes] = frozenset() if repeated is None else repeated.but(doubtful)
        self.doubtful = doubtful
        self.observed: list[tuple[str, int, Observation]] = []
        self.refused: list[RefusedRecord] = []
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

    def _rows(self, source: str, rows: pa.Table) -> Iterator[_Row | RepeatedRun]:
        """Yield each row; for blocks that were left out, their run or each of them."""
        columns = [rows[name].to_pylist() for name in ("position", "payload", "damage", "left_out", "log_id")]
        for position, payload, damage, blocks, log_id in noted(zip(*columns, strict=True)):
            if blocks is None:
                yield position, payload, damage, log_id
                continue
            some = LeftOutBlocks(position, payload, **blocks)
            run = self._as_left_out(source, some)
            if run is not None:
                yield run
            else:
                yield from self._unapplied(source, some, log_id)

    def _unapplied(self, source: str, left_out: LeftOutBlocks, log_id: int | None) -> Iterator[_Row]:
        """Yield the rows of blocks that a worker left out and that were not applied yet."""
        if self._reread is None:
            raise AssertionError(f"blocks of {source} were left out, and nothing can read them")
        for item in self._reread(source, left_out.start, left_out.end, log_id):
            if item.position > self._applied.get(source, NOWHERE).position:
                yield item[0], item[1], item.reason if isinstance(item, DamagedRange) else None, log_id

    def _as_left_out(self, source: str, some: LeftOutBlocks) -> RepeatedRun | None:
        """Return the run that a worker left out; None if it must be read from the bus."""
        was_cut = some.start <= self._applied.get(source, NOWHERE).position  # a batch is repeated with other boundaries
        if self._repeated is None or was_cut:
            return None
        run = self._repeated.run_left_out(some, self._certain)
        return None if run is None or is_ahead(run.envelope, now()) else run

    def has_doubts(self) -> bool:
        """Return whether another observation of the batch may change the topic of a block that was skipped."""
        return any(not self.doubtful.isdisjoint(run.digests) for run in self._runs)

    def _run_with(self, run: RepeatedRun | None, row: _Row) -> RepeatedRun | None:
        """Return the run of repeated blocks that a row extends or begins; None if the row must be decoded."""
        _, payload, damage, _ = row
        longer = run_with(run, payload, self._certain) if self._repeated and damage is None else None
        return None if longer is None or is_ahead(longer.envelope, now()) else longer

    def _decode(self, source: str, position: int, payload: bytes, damage: str | None, log_id: int | None) -> None:
        try:
            observed = decode_row(payload, damage, Channel.REPLICATION)
        except InvalidObservation as reason:
            record = RefusedRecord(source=source, log_id=log_id, position=position, reason=str(reason), raw=payload)
            self.refused.append(record)
            return
        self._add(source, observed)
        if self._repeated is None:
            return
        self.doubtful |= self._repeated.at_risk(observed)
        if isinstance(observed, PartitionsObserved) and (block := with_digest(observed, payload)) is not None:
            self.blocks.append(block)

    def _end(self, source: str, run: RepeatedRun) -> None:
        """Add the run in place of the blocks that it skipped."""
        self._runs.append(run)
        self._add(source, run.as_observation())

    def _add(self, source: str, observed: Observation) -> None:
        self.observed.append((source, observed.occurred_not_after, observed))


# Blocks of a full report that repeat the state, recognised by digest and never decoded.
#
# The digest of a block is kept while the block describes the present state; a change of any partition of its topic
# removes it. Depends on the codec and the fold's rules, not on Arrow or Spark.


_ENCODINGS: Final = 3  # the metadata log and pollers encode the same partitions differently


def with_digest(observed: PartitionsObserved, payload: bytes) -> DecodedBlock | None:
    """Return a block to remember; None if our codec would encode it differently, as with a duplicate field."""
    cut = cut_block(payload)
    return DecodedBlock(observed, digest_of(observed, cut[1])) if cut and encode(observed) == payload else None


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block that was decoded, and its digest."""

    observed: PartitionsObserved
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Difference:
    """The live difference of two sets."""

    one: AbstractSet[bytes]
    other: AbstractSet[bytes]

    def __contains__(self, digest: object) -> bool:
        return digest in self.one and digest not in self.other


@dataclass(slots=True)
class _Topic:
    """The digests of a topic's blocks by their first partition, newest first, and the topic's last partition."""

    last_partition: int = -1
    digests: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    def all(self) -> set[bytes]:
        return {digest for digests in self.digests.values() for digest in digests}


class RepeatedBlocks:
    """The digests of the blocks that describe the present state."""

    def __init__(self, published: Path | None = None) -> None:
        """Begin without any; ``published`` is the file of digests for workers, None if they must read all blocks."""
        self._repeated: set[bytes] = set()
        self._topics: defaultdict[TopicKey, _Topic] = defaultdict(_Topic)
        self._is_published = True
        self._publisher = DigestPublisher(published)
        self._publisher.withdraw()

    def __len__(self) -> int:
        """Return how many blocks are remembered."""
        return len(self._repeated)

    def but(self, doubtful: AbstractSet[bytes]) -> Container[bytes]:
        """Return the digests without some, which may grow later: their blocks must be decoded."""
        return _Difference(self._repeated, doubtful)

    def run_left_out(self, left_out: LeftOutBlocks, repeated: Container[bytes]) -> RepeatedRun | None:
        """Return the run that a worker left out; None if one of its blocks is not among the ``repeated`` ones."""
        digests = self._publisher.digests_of(left_out)
        run = new_run(left_out.payload)
        if run is None or digests is None or not all(digest in repeated for digest in digests):
            return None
        run.extend(digests)
        return run

    def learn(self, decoded: Iterable[DecodedBlock], touched: ReplicationState, state: ReplicationState) -> None:
        """Forget the blocks of topics that changed, and remember decoded ones that describe the present state."""
        for key in touched.topics:
            if (topic := self._topics.pop(key, None)) is not None:
                self._repeated -= topic.all()
        for block in decoded:
            if _describes(block.observed, state):
                self._remember(block)
                self._is_published = False
        if not self._is_published:
            self._is_published = self._publisher.publish(self._repeated)

    def _remember(self, block: DecodedBlock) -> None:
        observed = block.observed
        topic = self._topics[observed.cluster_id, observed.topic_id]
        first = observed.partitions[0]
        others = tuple(digest for digest in topic.digests.get(first, ()) if digest != block.digest)
        self._repeated.difference_update(others[_ENCODINGS - 1 :])
        topic.digests[first] = (block.digest, *others[: _ENCODINGS - 1])
        topic.last_partition = max(topic.last_partition, observed.partitions[-1])
        self._repeated.add(block.digest)

    def at_risk(self, observed: Observation) -> set[bytes]:
        """Return the digests of the blocks that an observation may change."""
        if isinstance(observed, PartitionObserved | PartitionsBlock | TopicRemoved):
            topic = self._topics.get((observed.cluster_id, observed.topic_id))
            return set() if topic is None else topic.all()
        if isinstance(observed, SnapshotEnd):
            counts = dict(zip(observed.topic_ids, observed.partition_counts, strict=True))
            return {
                digest
                for (cluster_id, topic_id), topic in self._topics.items()
                if cluster_id == observed.cluster_id and topic.last_partition >= counts.get(topic_id, 0)
                for digest in topic.all()
            }
        return set()


def _describes(block: PartitionsObserved, state: ReplicationState) -> bool:
    """Return whether a block describes the present state."""
    states = state.topic((block.cluster_id, block.topic_id))
    if isinstance(states, ListedPartitions) and states.are_of(block):
        return True
    return all(
        (partition := states.get(observed.partition)) is not None and is_repeated(partition, observed)
        for observed in news(block, states)
    )
