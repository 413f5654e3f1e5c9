"""A batch of the replication query: rows of the bus in, one commit to the change log out, then the derived tables.

Positions are committed with the changes that follow from them, and what was applied already is skipped by position. So
a batch may be repeated, with other boundaries, after a crash of the driver, its JVM or its Python, or with a new
checkpoint. Nothing that grows with the clusters passes here: positions, names of files, the state of sources, the rows
of brokers and clusters, and refused records, of which few are kept. The workers do the rest (``shards.task``).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.sources import of_replaced_logs
from streaming.contracts.identifiers import NOWHERE, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import (
    SECONDS_BETWEEN_HEARTBEATS,
    SECONDS_BETWEEN_HEARTBEATS_IN_STORES,
    ChangeReader,
    ChangesRestarted,
)
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.commit import NO_LOG_IDS
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.projections.of_clusters import recovered_sources
from streaming.delta.projections.tables import DerivedTables
from streaming.delta.quarantine import Quarantine
from streaming.delta.store.place import Url
from streaming.errors import TableRefused
from streaming.jobs.queries import BatchResult, Stopwatch, summed
from streaming.jobs.shards.rounds import Rounds, merged, names_of
from streaming.jobs.shards.task import FoldInDriver, OpenIncidents, ShardResult, ShardTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.contracts.identifiers import ClusterId, LogPosition
    from streaming.contracts.state import SourceState
    from streaming.delta.projections.of_clusters import Derived, DerivedBefore
    from streaming.delta.store.place import Place
    from streaming.jobs.shards.task import FoldWorkers

SECONDS_WHILE_DEGRADED: Final = 5.0
_VERSIONS_AT_ONCE: Final = 10


class ReplicationBatch:
    """Commits what workers have folded. The only writer of ``partition_changes``, and of what derives from it.

    There are no ``offsets``: the commits of the change log have them.
    """

    offsets: Final = NO_LOG_IDS

    def __init__(
        self,
        directory: Place,
        policy: RetentionPolicy = KEEP_ALL,
        workers: FoldWorkers | None = None,
        bus: KafkaReader | None = None,
        gaps: IncidentGaps | None = None,
    ) -> None:
        """Open the tables.

        Without workers this process folds the rows; with ``gaps`` they fold incidents as well. The bus is a directory,
        unless it has topics.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._directory, self._clock = directory, policy.clock
        self.workers = workers or FoldInDriver()
        self._rounds = Rounds[ShardTask, ShardResult](self.workers, bus, Channel.REPLICATION)
        self._change_log = ChangeLog(directory, policy)
        self._quarantine = Quarantine(directory, Channel.REPLICATION, policy)
        self._tables = DerivedTables(directory, policy)
        states = self._recovered()
        self._gaps, self._incidents = gaps, None if gaps is None else self._followed(gaps, policy)
        # Another thread may ask for the two together, and for the positions: they are replaced, never changed.
        self._sources = {(state.cluster_id, state.source): state for state in states}, self._change_log.version
        # A kill may have left records in quarantine that no commit counts; they are not counted when they come again.
        self._refused = self._quarantine.by_source()
        names = {*(state.source for state in states), *self._refused}
        for state in states:
            self._refused[state.source] -= state.quarantined
        self._refused = +self._refused
        self.applied: Mapping[str, LogPosition] = {name: self._change_log.at(name) for name in names}
        self._lock = threading.RLock()
        self._derived_at, self._is_deriving = time.monotonic(), False
        self._stepped = self._change_log.version
        # The clusters whose derived tables lack something: after a kill it may be any of them.
        is_behind = self._tables.version < self._stepped
        self._pending = {state.cluster_id for state in states if is_behind}
        self.workers.open(self._task(None))

    def _recovered(self) -> list[SourceState]:
        """Read how far sources were applied, and check that no derived table is ahead of the change log.

        Each of them alone: of an older change log, the table that is ahead would not be written for long.
        """
        newest, version = self._tables.newest, self._change_log.version
        why: object = f"its newest one is {version}"
        try:
            states = recovered_sources(self._directory, version)
        except ChangesRestarted as error:
            why = error
        else:
            if newest <= version:
                return states
        raise TableRefused(
            f"the state tables were computed up to version {newest} of {self._directory / PARTITION_CHANGES.name}, "
            f"which is older ({why}); bring back the whole folder of the tables from one copy, or point "
            "tables.directory and job.checkpoint at new folders"
        )

    def _followed(self, gaps: IncidentGaps, policy: RetentionPolicy) -> IncidentsTable:
        """Open the incidents, and bring them up to the change log: a kill has left them a few versions behind."""
        incidents = IncidentsTable(self._directory, gaps, policy)
        reader = ChangeReader(self._directory / PARTITION_CHANGES.name, incidents.version)
        while reader.version < self._change_log.version:
            incidents.apply(reader.poll(min(reader.version + _VERSIONS_AT_ONCE, self._change_log.version)))
        incidents.hand_over()
        return incidents

    @property
    def version(self) -> int:
        """The newest version of the change log."""
        return self._change_log.version

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source is."""
        return self.applied.get(source, NOWHERE)

    def offset(self, name: str) -> int:
        """Return the offset that the newest commit holds under a name, -1 for none."""
        return self._change_log.at(name).position

    def sources(self) -> tuple[list[SourceState], int]:
        """Return the state of every source, and the change log version it follows from."""
        states, version = self._sources
        return list(states.values()), version

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the tables."""
        self._change_log.check_ours()
        if self._incidents is not None:
            self._incidents.check_ours()

    def apply(self, rows: Any) -> BatchResult:  # noqa: ANN401 - a frame of Spark, or its rows
        """Apply one micro-batch: rows as in ``bus_source.SCHEMA`` or of ``kafka_stream``; for executors a frame.

        Raises:
            TableRefused: another job writes the same tables; nothing was written.
            IsrwatchError: the topic is not the one that the query began to read.
        """
        with self._lock:
            return self._outcome(rows)

    def _outcome(self, rows: Any) -> BatchResult:  # noqa: ANN401 - as above
        watch, results = Stopwatch(), list[ShardResult]()
        before = self._tables.before if self.workers.derive_in_batches and self._is_due(1) else None
        in_turn = chain([before], repeat(None))  # the first round alone computes derived tables
        for task, some in self._rounds.of_batch(rows, lambda: self._task(next(in_turn)), self):
            watch.lap("shards")
            if task.derived_before is not None:
                self._project_with_batch(task, some)
                watch.lap("projections")
            self._commit(some)
            watch.lap("commit")
            results += some
        applied = summed([each.result for each in results])
        stages, clusters = self.workers.stages(applied.stages, watch.stages), names_of(results, self._sources[0])
        version = self._change_log.version
        return replace(applied, version=version, seconds=watch.seconds, stages=stages, clusters=clusters)

    def _task(self, before: DerivedBefore | None) -> ShardTask:
        incidents = None
        if self._gaps is not None and self._incidents is not None:
            incidents = OpenIncidents(gaps=self._gaps, continued=self._incidents.continued)
        return ShardTask(
            **self._rounds.given(self._sources[0]),
            tables=self._directory,
            applied=self.applied,
            base=self._change_log.version,
            committed_at=self._clock(),
            refused=dict(self._refused),
            derived_before=before,
            incidents=incidents,
        )

    def _commit(self, results: Sequence[ShardResult]) -> None:
        """Commit the changes of all shards at the version that their rows carry."""
        refused = [record for each in results for record in each.refused]
        self._quarantine.add(refused, Micros(self._clock()))
        unreported = merged(each.unreported for each in results)
        self._refused = +Counter({**self._refused, **unreported})
        positions = merged(each.positions for each in results)
        log_ids = merged(each.log_ids for each in results)
        if positions:
            # First: were anything to fail behind the commit, the next round would be as of it, and leave them out.
            self._pending |= {cluster_id for each in results if each.positions for cluster_id in each.clusters}
            added = [add for each in results for add in each.added]
            moved = {**positions, **self._rounds.offsets(results)}
            version = self._change_log.commit_files(added, moved, log_ids)
            self._move(positions, (state for each in results for state in each.sources))
            if not all(each.only_sources for each in results):
                self._stepped = version
            if self._incidents is not None:
                # In the order of the ordinals of their rows, which the numbers of new incidents follow.
                by_partition = sorted(results, key=lambda each: each.reading.partition)
                self._incidents.put([each.incidents for each in by_partition], version)

    def set_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back to the last common records of their replaced logs, and commit that."""
        changes = tuple(of_replaced_logs(self._sources[0].values(), now_at))
        positions = {source: at.position for source, at in now_at.items()}
        log_ids = {source: at.log_id for source, at in now_at.items() if at.log_id is not None}
        states = [change.source_after for change in changes if change.source_after is not None]
        self._pending |= {state.cluster_id for state in states}
        self._stepped = self._change_log.commit(changes_to_arrow(changes), positions, log_ids)
        self._rounds.begin_again()
        self._move(now_at, states)

    def _move(self, sources: Iterable[str], states: Iterable[SourceState]) -> None:
        """Take over where sources are, and their states, as the change log now has them."""
        self.applied = {**self.applied, **{source: self._change_log.at(source) for source in sources}}
        moved = {(state.cluster_id, state.source): state for state in states}
        self._sources = {**self._sources[0], **moved}, self._change_log.version

    # The derived tables: a round computes the clusters that have changed since the last one.

    def is_due(self) -> bool:
        """Return whether a round is due without a batch."""
        return self._is_due(self.workers.patience)

    def _is_due(self, factor: float) -> bool:
        """Return whether tables lack something: after steps soon, after mere heartbeats later."""
        if self._is_deriving:  # its thread moves the tables
            return False
        is_in_store = isinstance(self._directory, Url)
        rest = SECONDS_BETWEEN_HEARTBEATS_IN_STORES if is_in_store else SECONDS_BETWEEN_HEARTBEATS
        rest = SECONDS_WHILE_DEGRADED if self._tables.is_degraded else rest
        rest = self.workers.rest_seconds if self._stepped > self._tables.version else rest
        is_rested = time.monotonic() - self._derived_at >= factor * rest
        return bool(self._pending) and is_rested

    @contextmanager
    def _round(self) -> Iterator[set[ClusterId]]:
        """Take the clusters of a round, which stay due if it fails."""
        clusters, self._pending, self._is_deriving = self._pending, set(), True
        try:
            yield clusters
        except BaseException:
            self._pending.update(clusters)
            raise
        else:
            self._derived_at = time.monotonic()
        finally:
            self._is_deriving = False

    def project(self) -> float:
        """Write the derived tables without a batch; return the seconds that it took, once no batch was applied."""
        with ExitStack() as until_written:
            with self._lock:
                began = time.monotonic()
                if not self._pending or self._is_deriving:
                    return 0.0
                clusters = until_written.enter_context(self._round())
                task = self._task(None)
                derive = self.workers.deriving(task, self._tables.before, clusters)
            self._end_round(derive(), task.base)
        return time.monotonic() - began

    def _project_with_batch(self, task: ShardTask, results: Sequence[ShardResult]) -> None:
        """Write the derived tables as of before a batch; the shards have computed the clusters with rows."""
        pieces = [each.derived for each in results if each.derived is not None]
        with self._round() as clusters:
            others = clusters.difference(*(piece.clusters for piece in pieces))
            derive = self.workers.deriving(task, self._tables.before, others)
            self._end_round([*pieces, *derive()], task.base)

    def _end_round(self, pieces: Sequence[Derived], version: int) -> None:
        self._tables.commit(pieces, version)
        if self._incidents is not None:
            with self._lock:
                self._incidents.save()
