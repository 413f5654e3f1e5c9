"""A batch of samples: the newest rows of whole clusters in a worker, the commits in the driver.

A task writes what its clusters have in each table that has news, in files of theirs; the driver commits one entry for
each table. How far the sources were read is stored with their progress, and nowhere else; so a batch that was committed
in some of the tables only comes again, and changes nothing there. The spells that samples show are committed before the
rows that they follow from: from spells that are ahead a repeated batch continues, those that are behind would lack what
newer rows do not show any more. So while they cannot be written, these tables are not either.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.state import SourceKey
from streaming.contracts.identifiers import NOWHERE, LogPosition, Micros
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.contracts.sample_tables import TABLE_OF
from streaming.contracts.samples import BrokerMetricObserved
from streaming.contracts.state import SourceState
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.delta.log.cluster_files import files_by_cluster, of_clusters, write_cluster
from streaming.delta.log.commit import NO_LOG_IDS
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.log.queries import open_ours, plain, select, where_in
from streaming.delta.log.writer import opened_together
from streaming.delta.progress import ProgressTable
from streaming.delta.quarantine import Quarantine, RefusedRecord
from streaming.delta.samples.isr_reconciliation import ReconciliationTable, meters_in
from streaming.delta.samples.newest import Newest
from streaming.delta.samples.sampled_spells import SAMPLED_KINDS, SampledSpells
from streaming.errors import InvalidObservation, IsrwatchError
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons, summed
from streaming.jobs.shards.decoded_batch import decode_row, fresh_rows, newest_log_ids, newest_positions
from streaming.jobs.shards.reading import Task, TaskResult, read_rows
from streaming.jobs.shards.rounds import Rounds, merged, names_of
from streaming.jobs.shards.workers import InDriver, Keeper, Worker, Workers
from streaming.jobs.streams.sample_columns import columns_of, from_stream, schema_of
from streaming.movement import noted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import Observation
    from streaming.delta.log.cluster_files import Adds
    from streaming.delta.store.place import Place

# Tables are written whole. If less than this share of a table was new, the query rests for three times as long as the
# write took, so that small batches do not keep it writing all the time. Other tables of the batch do not count.
SMALL_SHARE: Final = 0.1
REST_PER_WORK: Final = 3.0
LONGEST_REST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind in the order of the log, one column per field (times in microseconds), and refused records."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[RefusedRecord, ...]


def read_samples(rows: pa.Table) -> Samples:
    """Read the rows of a batch, as in ``bus_source.SCHEMA``; blocks are of the kind of their samples.

    Raises:
        NewerFormat: a newer program wrote one of them.
    """
    samples: dict[type[Observation], list[Observation | pa.Table]] = defaultdict(list)
    refused: list[RefusedRecord] = []
    columns = (rows[name].to_pylist() for name in ("source", "log_id", "position", "payload", "damage", "samples"))
    for source, log_id, position, payload, damage, stream in noted(zip(*columns, strict=True)):
        try:
            kind, read = _read(payload, damage) if stream is None else from_stream(stream)
        except InvalidObservation as reason:
            record = RefusedRecord(source=source, log_id=log_id, position=position, reason=str(reason), raw=payload)
            refused.append(record)
        else:
            samples[kind].append(read)
    return Samples({kind: _table(kind, samples[kind]) for kind in TABLE_OF}, tuple(refused))


def _read(payload: bytes, damage: str | None) -> tuple[type[Observation], Observation | pa.Table]:
    observed = decode_row(payload, damage, Channel.SAMPLES)
    return (observed.sample, columns_of(observed)) if isinstance(observed, SamplesBlock) else (type(observed), observed)


def _table(kind: type[Observation], samples: Iterable[Observation | pa.Table]) -> pa.Table:
    """Return samples of one kind, single ones and columns, as one table."""
    schema = schema_of(kind)
    pieces = [schema.empty_table()]
    for are_columns, together in groupby(samples, lambda each: isinstance(each, pa.Table)):
        if are_columns:
            pieces += together
        else:
            rows = [{name: getattr(each, name) for name in schema.names} for each in together]
            pieces.append(pa.Table.from_pylist(rows, schema=schema))
    return pa.concat_tables(pieces).unify_dictionaries()


# Progress of samples, as the fold keeps it for replication.


class SampleProgress:
    """Progress of a batch of samples on the bus. Implements most of :class:`streaming.jobs.queries.BusProgress`.

    It is stored with the sources, and nowhere else. Another thread may read it while a batch is applied: it is never
    ahead of the tables.

    Attributes:
        applied: where the last record is up to which the tables hold each source; they may hold later ones, too.
        offsets: of the bus, up to which the tables hold it, by name, to store with the sources.
    """

    def __init__(self, directory: Place, quarantined: Mapping[str, int]) -> None:
        """Begin with what is stored.

        ``quarantined``, the number of records by source, may not be stored with the sources yet, if the job was killed
        after it had quarantined them.
        """
        self._progress = ProgressTable(directory, Channel.SAMPLES)
        states = {(state.cluster_id, state.source): state for state in self._progress.sources()}
        self.applied: Mapping[str, LogPosition] = {
            state.source: LogPosition(state.position, state.log_id) for state in states.values()
        }
        self._quarantined = Counter({state.source: state.quarantined for state in states.values()})
        self._quarantined |= Counter(quarantined)
        self._states: dict[SourceKey, SourceState] = {key: self._current(state) for key, state in states.items()}
        self.offsets: Mapping[str, int] = NO_LOG_IDS

    def at(self, source: str) -> LogPosition:
        """Return where the last record is up to which the tables hold a source."""
        return self.applied.get(source, NOWHERE)

    def offset(self, name: str) -> int:
        """Return the offset of the bus that is stored under a name, -1 for none."""
        return self._progress.offset(name)

    def sources(self) -> tuple[list[SourceState], None]:
        """Return the state of every source, and None: samples follow from no version of the change log."""
        return list(self._states.values()), None

    def set_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back to the last common records of their replaced logs.

        If there is none, the times of the source are unknown until the first sample of the new log.
        """
        self.applied = {**self.applied, **now_at}
        for key, state in self._states.items():
            is_begun_again = state.source in now_at and now_at[state.source].position < 0
            unheard = state._replace(observed_until=None, collected_at=None)
            self._states[key] = self._current(unheard if is_begun_again else state)

    def advance(
        self,
        samples: Iterable[pa.Table],
        refused: Mapping[str, int],
        positions: Mapping[str, int],
        log_ids: Mapping[str, int] = NO_LOG_IDS,
    ) -> None:
        """Move the sources of an applied batch forward to their newest positions.

        ``samples`` have cluster_id, cluster, source, and collected_at in microseconds; ``refused`` is newly
        quarantined.
        """
        self._quarantined.update(refused)
        moved = {source: LogPosition(position, log_ids.get(source)) for source, position in positions.items()}
        self.applied = {**self.applied, **moved}  # replaced, never changed: another thread may be reading it
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._observe(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            self._states[key] = self._current(state)

    def _current(self, state: SourceState) -> SourceState:
        """Return a state with the position and the refused records of its source."""
        at, quarantined = self.at(state.source), self._quarantined[state.source]
        return state._replace(position=at.position, log_id=at.log_id, quarantined=quarantined)

    def _observe(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        state = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, source_kind=SourceKind.NONE
        )
        newest = max(moment, state.collected_at or moment)
        state = state._replace(cluster=cluster, observed_until=newest, collected_at=newest)
        self._states[cluster_id, source] = self._current(state)


# The task: runs in the driver, or in Spark's Python workers on executors.


_OF_SOURCE: Final = ["cluster_id", "cluster", "source", "collected_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTask(Task):
    """Input of a task on samples; the logs of ``forgotten`` sources begin again."""

    forgotten: frozenset[str] = frozenset()
    days: int = 0


class WrittenTable(NamedTuple):
    """The files of each cluster in one table, and the seconds that they took if little of them was new."""

    files: Mapping[ClusterId, Adds]
    small_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult(TaskResult):
    """Result of a task on samples: the tables written, by name, and when the newest sample of each source was taken.

    ``meters`` are the samples that are compared with the change log; with the first result also those of the tables.
    """

    tables: Mapping[str, WrittenTable]
    sources: pa.Table
    meters: pa.Table


class SampleShard(Keeper[SampleTask]):
    """The newest rows of some clusters, in a worker."""

    def __init__(self, task: SampleTask) -> None:
        """Begin without any cluster."""
        super().__init__()
        self._tables = task.tables
        self._rows: dict[type[Observation], Newest] = {}
        self._spells = SampledSpells()
        self._meters: list[pa.Table] = []

    def prepare(self, task: SampleTask, clusters: AbstractSet[ClusterId]) -> None:
        """Read the rows of all clusters again if one is missing here; the tables have no rows of a new cluster.

        Rows of sources of whose log nothing was applied are dropped: the job was killed before it stored how far it
        was, or it was stopped when that log had begun again, before any of it came.
        """
        if not task.must_read(clusters, self.clusters):
            return
        applied = {source for source, at in task.applied.items() if at.position >= 0}
        for kind, definition in TABLE_OF.items():
            rows = select(open_ours(self._tables, definition), definition, where_in(self.clusters))
            self._rows[kind] = Newest(definition, plain(rows))
            self._rows[kind].forget(self._rows[kind].sources - applied)
        spells = select(open_ours(self._tables, SAMPLED_CONDITIONS), SAMPLED_CONDITIONS, where_in(self.clusters))
        self._spells = SampledSpells(spells, task.days)
        self._meters = [meters_in(self._rows[BrokerMetricObserved].rows)]

    def meters(self, samples: Samples) -> pa.Table:
        """Return the meters of a batch, behind those that were read since the last one: they may be waiting still."""
        meters, self._meters = [*self._meters, meters_in(samples.columns[BrokerMetricObserved])], []
        return pa.concat_tables(meters)

    def apply(self, samples: Samples, forgotten: AbstractSet[str]) -> dict[str, WrittenTable]:
        """Apply samples, and write the rows of their clusters; return what was written by table."""
        written = {}
        for kind, table in self._rows.items():
            news, began = samples.columns[kind], time.perf_counter()
            lost = table.sources & forgotten
            if not len(news) and not lost:
                continue
            clusters = set(pc.unique(news["cluster_id"]).to_pylist())
            if lost:
                clusters |= self.clusters
                table.forget(lost)
            if len(news):
                self._spells.take(table, news)
            rows = {cluster_id: of_clusters(table.on_disk, {cluster_id}) for cluster_id in sorted(clusters)}
            files = {each: write_cluster(self._tables, table.definition, each, own) for each, own in rows.items()}
            is_small = len(news) < sum(map(len, rows.values())) * SMALL_SHARE
            written[table.definition.name] = WrittenTable(files, (time.perf_counter() - began) * is_small)
        if spells := self._spells.changed():
            files = {each: write_cluster(self._tables, SAMPLED_CONDITIONS, each, own) for each, own in spells.items()}
            written[SAMPLED_CONDITIONS.name] = WrittenTable(files, 0.0)
        return written


def applied_partition(task: SampleTask, partition: int, rows: pa.Table, shard: SampleShard) -> SampleResult:
    """Apply the rows of one partition, in the order of their offsets."""
    watch = Stopwatch()
    rows, reading = read_rows(task, partition, rows)
    fresh = fresh_rows(rows, task.applied)
    samples = read_samples(fresh)
    watch.lap("decode")
    sources = pa.concat_tables([
        table.select(_OF_SOURCE).cast(_SOURCES) for table in samples.columns.values()
    ]).group_by(_OF_SOURCE[:3]).aggregate([(_OF_SOURCE[3], "max")])  # fmt: skip
    clusters = frozenset(task.clusters_of(set(reading.consumed)) | set(sources["cluster_id"].to_pylist()))
    shard.prepare(task, clusters | {each for each, home in task.homes.items() if home == partition})
    tables = shard.apply(samples, task.forgotten)
    watch.lap("write")
    shard.token = uuid.uuid4().hex
    count = sum(len(table) for table in samples.columns.values())
    return SampleResult(
        reading=reading,
        token=shard.token,
        clusters=clusters,
        tables=tables,
        sources=sources,
        meters=shard.meters(samples),
        positions=newest_positions(fresh),
        log_ids=newest_log_ids(fresh),
        refused=samples.refused,
        result=BatchResult(
            observations=count,
            changes=count,
            refused=len(samples.refused),
            version=-1,
            seconds=watch.seconds,
            stages=watch.stages,
            reasons=count_reasons(samples.refused),
        ),
    )


EXECUTOR: Final = Worker(SampleShard, applied_partition)
"""This process, if it is a Python worker of Spark."""


def apply_partitions(task: SampleTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply the rows of one partition of the bus in a task of Spark; yield the result."""
    yield from EXECUTOR.done_on_executor(task, batches)


_SOURCES: Final = pa.schema([*((name, pa.string()) for name in _OF_SOURCE[:3]), (_OF_SOURCE[3], pa.int64())])


class SampleBatch(SampleProgress):
    """Commits what workers have applied. The only writer of the tables of samples."""

    def __init__(
        self,
        directory: Place,
        policy: RetentionPolicy = KEEP_ALL,
        workers: Workers[SampleTask, SampleResult] | None = None,
        bus: KafkaReader | None = None,
    ) -> None:
        """Open the tables.

        Without workers this process applies the samples; the bus is a directory, unless it has topics.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._directory, self._clock, self._days = directory, policy.clock, policy.days
        self._workers = workers or InDriver(SampleShard, applied_partition)
        self._rounds = Rounds[SampleTask, SampleResult](self._workers, bus, Channel.SAMPLES)
        self._forgotten = set[str]()
        written = (SAMPLED_CONDITIONS, *TABLE_OF.values())
        self._writers = opened_together(directory, written)
        self._maintenance = {name: Maintenance(writer, policy) for name, writer in self._writers.items()}
        self._quarantine = Quarantine(directory, Channel.SAMPLES, policy)
        super().__init__(directory, self._quarantine.by_source())
        self._reconciled = ReconciliationTable(directory, policy)
        self._workers.open(self._task())

    def set_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back to the last common records of their replaced logs.

        Samples of a log that has no record in common with the one before are forgotten with the next batch: their
        collector's clock may have been ahead, and then no sample of the new log would replace them.
        """
        self._forgotten |= {source for source, at in now_at.items() if at.position < 0}
        super().set_back(now_at)

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed one of the tables."""
        for writer in self._writers.values():
            writer.check_ours()
        self._reconciled.check_ours()

    def apply(self, rows: Any) -> BatchResult:  # noqa: ANN401 - a frame of Spark, or its rows
        """Apply one micro-batch; samples that are older than what the tables hold change nothing.

        What a cluster has in a table is written whole, so a small batch is followed by a rest (see ``SMALL_SHARE``).
        The rows are as in ``bus_source.SCHEMA`` or of ``kafka_stream``; for executors a frame.

        Raises:
            TableRefused: another job writes the same tables.
            IsrwatchError: the topic is not the one that the query began to read.
        """
        watch, results = Stopwatch(), list[SampleResult]()
        for _, some in self._rounds.of_batch(rows, self._task, self):
            watch.lap("shards")
            self._commit(some)
            watch.lap("commit")
            results += some
        self.offsets = {**self.offsets, **self._rounds.offsets(results)}
        seconds = watch.seconds
        small = max((sum(each.small_seconds for each in one.tables.values()) for one in results), default=0.0)
        time.sleep(min(small * REST_PER_WORK, LONGEST_REST_SECONDS))
        applied = summed([each.result for each in results])
        stages, clusters = self._workers.stages(applied.stages, watch.stages), names_of(results, self._states)
        return replace(applied, seconds=seconds, stages=stages, clusters=clusters)

    def _task(self) -> SampleTask:
        return SampleTask(
            **self._rounds.given(self._states),
            tables=self._directory,
            applied=self.applied,
            forgotten=frozenset(self._forgotten),
            days=self._days,
        )

    def _commit(self, results: Sequence[SampleResult]) -> None:
        """Commit the files of all shards, table by table.

        A table that cannot be written stops none that does not follow from it: the batch fails behind the last of
        them, and comes again.
        """
        refused = self._quarantine.add([each for one in results for each in one.refused], Micros(self._clock()))
        failures: dict[str, IsrwatchError] = {}
        for name in self._writers:
            if name in SAMPLED_KINDS and SAMPLED_CONDITIONS.name in failures:
                continue
            try:
                self._commit_table(name, [one.tables[name].files for one in results if name in one.tables])
            except IsrwatchError as failure:
                failures[name] = failure
        if failures:
            raise next(iter(failures.values()))
        meters = pa.concat_tables([one.meters for one in results]) if results else None
        if meters is not None and len(meters):
            self._reconciled.put(meters)
        positions, log_ids = (merged(getattr(one, name) for one in results) for name in ("positions", "log_ids"))
        sources = [one.sources.rename_columns(_OF_SOURCE) for one in results]
        self.advance(sources, refused, positions, log_ids)
        self._forgotten -= {source for one in results for source in one.reading.consumed}

    def _commit_table(self, name: str, files: Sequence[Mapping[ClusterId, Adds]]) -> None:
        """Commit what shards have written for one table, in place of what their clusters had there."""
        writer = self._writers[name]
        before = files_by_cluster(writer) if files else {}
        added = [add for of_shard in files for adds in of_shard.values() for add in adds]
        gone = [file for of_shard in files for cluster_id in of_shard for file in before.get(cluster_id, ())]
        if added or gone:
            writer.add_files(added, gone, {})
            self._maintenance[name].after_commit()
