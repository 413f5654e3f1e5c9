"""The driver's part where executors fold: one Spark job and one commit to the change log for each micro-batch.

Nothing that grows with the clusters passes here: positions, names of files, the state of sources, the rows of brokers
and clusters, and refused records, of which few are kept. Depends on Spark for the job alone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import SparkSession

from streaming.changes.sources import of_replaced_logs
from streaming.contracts.identifiers import NOWHERE, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import SECONDS_BETWEEN_HEARTBEATS, ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.projections.of_clusters import Derived, DerivedTables, recovered_sources
from streaming.delta.quarantine import Quarantine
from streaming.jobs.queries import BatchResult, Stopwatch, summed
from streaming.jobs.shards.rounds import Rounds, merged, ran
from streaming.jobs.shards.task import (
    OpenIncidents,
    Projection,
    ShardResult,
    ShardTask,
    fold_partitions,
    project_clusters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.state import SourceState
    from streaming.delta.log.positions import LastCommon
    from streaming.delta.store.place import Place

_OVERDUE: Final = 3
_VERSIONS_AT_ONCE: Final = 10
_GROUPS: Final = 4
"""Tasks among which the clusters are divided of which no row came."""


class ShardedBatch:
    """Commits what executors have folded. The only writer of ``partition_changes``, and of what derives from it."""

    def __init__(
        self,
        directory: Place,
        bus: KafkaReader,
        policy: RetentionPolicy = KEEP_ALL,
        project_seconds: float = 1.0,
        gaps: IncidentGaps | None = None,
    ) -> None:
        """Open the tables.

        Args:
            directory: of the tables.
            bus: what is known of its topics.
            policy: how long history and old files are retained.
            project_seconds: between two rounds of the derived tables.
            gaps: between incidents, which the shards fold, too; None: they do not.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._directory, self._clock = directory, policy.clock
        self._rounds = Rounds[ShardResult](
            bus, Channel.REPLICATION, self.at, lambda source: self.go_back([source], lambda _source, _at: NOWHERE)
        )
        self._change_log = ChangeLog(directory, policy)
        self._quarantine = Quarantine(directory, Channel.REPLICATION, policy)
        self._tables = DerivedTables(directory, policy)
        self._gaps, self._incidents = gaps, None if gaps is None else self._followed(gaps, policy)
        states = recovered_sources(directory, self._change_log.version)
        self._sources = {(state.cluster_id, state.source): state for state in states}
        names = {*(state.source for state in states), *self._quarantine.by_source()}
        self._refused = +Counter({name: self._change_log.unreported(name) for name in names})
        self._applied = {name: self._change_log.at(name) for name in names}
        self._lock = threading.Lock()
        self._pause, self._projected_at = project_seconds, time.monotonic()
        self._stepped = self._change_log.version
        # The clusters whose derived tables lack something: after a kill it may be any of them.
        is_behind = self._tables.version < self._stepped
        self._pending = {state.cluster_id for state in states if is_behind}

    def _followed(self, gaps: IncidentGaps, policy: RetentionPolicy) -> IncidentsTable:
        """Open the incidents, and bring them up to the change log: a kill has left them a few versions behind."""
        incidents = IncidentsTable(self._directory, gaps, policy)
        reader = ChangeReader(self._directory / PARTITION_CHANGES.name, incidents.version)
        while reader.version < self._change_log.version:
            incidents.apply(reader.poll(min(reader.version + _VERSIONS_AT_ONCE, self._change_log.version)))
        incidents.hand_over()
        return incidents

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last applied record of each source."""
        return {source: at.position for source, at in self._applied.items()}

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        return self._applied.get(source, NOWHERE)

    def offset(self, name: str) -> int:
        """Return the offset that the newest commit holds under a name, -1 for none."""
        return self._change_log.position(name)

    @property
    def offsets(self) -> Mapping[str, int]:
        """None: the commits of the change log have them."""
        return NO_LOG_IDS

    def sources(self) -> tuple[list[SourceState], int]:
        """Return the state of every source, and the change log version it follows from."""
        return list(self._sources.values()), self._change_log.version

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables.

        Raises:
            TableRefused: another one has.
        """
        self._change_log.check_ours()
        self._tables.check_ours()
        if self._incidents is not None:
            self._incidents.check_ours()

    def outcome(self, frame: DataFrame) -> BatchResult:
        """Apply one micro-batch: rows as :func:`streaming.jobs.streams.kafka_source.kafka_stream` has them.

        Raises:
            TableRefused: another job writes the same tables; nothing was written.
            IsrwatchError: the topic is not the one that the query began to read.
        """
        with self._lock:
            self._rounds.check_same()
            return self._outcome(frame)

    def _outcome(self, frame: DataFrame) -> BatchResult:
        watch, results, are_left = Stopwatch(), list[ShardResult](), True
        projection = self._projection()
        while are_left:
            task = self._task(projection)
            some = self._rounds.run(frame, fold_partitions, task)
            watch.lap("shards")
            if projection is not None:
                computed = [each.derived for each in some if each.derived is not None]
                self._project(frame.sparkSession, task, projection, computed)
                projection = None
                watch.lap("projections")
            self._commit(some)
            watch.lap("commit")
            results += some
            are_left = bool(self._rounds.leave(some)) or self._rounds.is_waiting
        self._rounds.note(results)
        done = summed([each.result for each in results])
        return replace(done, version=self._change_log.version, seconds=watch.seconds, stages=watch.stages)

    def _task(self, projection: Projection | None) -> ShardTask:
        return ShardTask(
            **self._rounds.given(self._sources),
            tables=self._directory,
            applied=dict(self._applied),
            base=self._change_log.version,
            committed_at=self._clock(),
            refused=dict(self._refused),
            projection=projection,
            incidents=self._open_incidents(),
        )

    def _open_incidents(self) -> OpenIncidents | None:
        if self._gaps is None or self._incidents is None:
            return None
        return OpenIncidents(gaps=self._gaps, carried=tuple(self._incidents.carried()))

    def _commit(self, results: Sequence[ShardResult]) -> None:
        """Commit the changes of all shards at the version that their rows carry."""
        refused = [record for each in results for record in each.refused]
        self._quarantine.add(refused, Micros(self._clock()))
        unreported = merged(each.unreported for each in results)
        self._refused = +Counter({**self._refused, **unreported})
        positions = merged(each.positions for each in results)
        log_ids = merged(each.log_ids for each in results)
        if positions:
            added = [add for each in results for add in each.added]
            moved = {**positions, **self._rounds.offsets(results)}
            version = self._change_log.commit_files(added, moved, log_ids, unreported)
            self._applied |= {source: self._change_log.at(source) for source in positions}
            self._sources |= {(state.cluster_id, state.source): state for each in results for state in each.sources}
            if not all(each.only_sources for each in results):
                self._stepped = version
            self._pending |= {cluster_id for each in results if each.positions for cluster_id in each.clusters}
            if self._incidents is not None:
                self._incidents.put((incident for each in results for incident in each.incidents), version)
        self._rounds.commit(results)

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now, and commit that; return where its last applied record stood."""
        before = self._change_log.go_back(sources, last_common)
        if before:
            now_at = {source: self._change_log.at(source) for source in before}
            changes = tuple(of_replaced_logs(self._sources.values(), now_at))
            self._quarantine.go_back({source: at.position for source, at in now_at.items()})
            log_ids = {source: at.log_id for source, at in now_at.items() if at.log_id is not None}
            positions = {source: at.position for source, at in now_at.items()}
            self._stepped = self._change_log.commit(changes_to_arrow(changes), positions, log_ids)
            states = [change.source_after for change in changes if change.source_after is not None]
            self._sources |= {(state.cluster_id, state.source): state for state in states}
            self._applied |= now_at
            self._pending |= {state.cluster_id for state in states}
        return before

    # The derived tables: computed by the shards with a batch, and by other tasks for clusters that no row of it is of.

    def _projection(self) -> Projection | None:
        """Return what the derived tables have, if a round is due."""
        return self._present() if self._pending and self._rested() >= self._rest else None

    @property
    def _rest(self) -> float:
        """Seconds between two rounds: after steps few, after mere heartbeats more."""
        return self._pause if self._stepped > self._tables.version else SECONDS_BETWEEN_HEARTBEATS

    def _rested(self) -> float:
        return time.monotonic() - self._projected_at

    def _present(self) -> Projection:
        return Projection(upto=self._tables.upto, files=self._tables.files())

    def _project(self, spark: SparkSession, task: ShardTask, projection: Projection, pieces: list[Derived]) -> None:
        """Commit a round, with the clusters that no shard has computed."""
        computed = {cluster_id for piece in pieces for cluster_id in piece.clusters}
        others = sorted(self._pending - computed)
        if others:
            groups = [others[number::_GROUPS] for number in range(min(_GROUPS, len(others)))]
            numbers = spark.range(0, len(groups), 1, len(groups))
            work = partial(project_clusters, task, projection, groups)
            pieces += cast("list[Derived]", ran(numbers, work))
        self._tables.commit(pieces, task.base)
        if self._incidents is not None:
            self._incidents.save()
        self._pending = set()
        self._projected_at = time.monotonic()

    def is_overdue(self) -> bool:
        """Return whether a round is due that no batch brings: nothing has come from the bus."""
        return bool(self._pending) and self._rested() >= _OVERDUE * self._rest

    def project(self, spark: SparkSession | None = None) -> None:
        """Write the derived tables without a batch; ``spark``: None for the running session."""
        with self._lock:
            if self._pending:
                projection = self._present()
                running = spark or SparkSession.builder.getOrCreate()
                self._project(running, self._task(projection), projection, [])
