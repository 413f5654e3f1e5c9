"""One micro-batch of the replication query: rows of the bus in, one commit to the change log out.

Positions are committed with the changes that follow from them, and what was applied already is skipped by position. So
a batch may be repeated, with other boundaries, after a crash of the driver, its JVM or its Python, or with a new
checkpoint. Depends on Arrow and the tables, not on Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.changes.sources import of_replaced_logs
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.projections.projections import Projections
from streaming.delta.quarantine import Quarantine
from streaming.errors import TableRefused
from streaming.jobs.queries import BatchResult, Stopwatch
from streaming.jobs.shards.shard import Shard
from streaming.jobs.spark_errors import sentence_of
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.state import SourceState
    from streaming.delta.log.positions import LastCommon
    from streaming.delta.store.place import Place
    from streaming.jobs.shards.decoded_batch import ReadLog


class ReplicationBatch:
    """Folds batches into the change log. The only writer of ``partition_changes``."""

    def __init__(
        self,
        directory: Place,
        policy: RetentionPolicy = KEEP_ALL,
        read: ReadLog | None = None,
        published: Path | None = None,
    ) -> None:
        """Open the tables and rebuild the state from them.

        Args:
            directory: of the tables.
            policy: how long history and old files are retained.
            read: reads blocks of a log that the workers left out.
            published: the file in which they find the digests of those; None if they leave none out.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._clock = policy.clock
        self._change_log = ChangeLog(directory, policy)
        self._quarantine = Quarantine(directory, Channel.REPLICATION, policy)
        self.projections = Projections(directory, policy)
        self.shared = self.projections.recover(self._change_log.version)
        self.shard = Shard(self.shared, self._refused_since(), read, published)

    def _refused_since(self) -> Counter[str]:
        """Count the applied records that were refused and that no state of their source counts.

        A source has a state once an observation has said which cluster it is of. Until then the commits of the change
        log count.
        """
        sources = {*(source for _, source in self.shared.state.sources), *self._quarantine.by_source()}
        return +Counter({source: self._change_log.unreported(source) for source in sources})

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last applied record of each source."""
        return self._change_log.positions

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self._change_log.position(source)

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        return self._change_log.at(source)

    def offset(self, name: str) -> int:
        """Return the offset that the newest commit holds under a name, -1 for none."""
        return self._change_log.position(name)

    @property
    def offsets(self) -> Mapping[str, int]:
        """None: the commits of the change log have them."""
        return NO_LOG_IDS

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now, and commit that; return where its last applied record stood."""
        before = self._change_log.go_back(sources, last_common)
        if before:
            now_at = {source: self._change_log.at(source) for source in before}
            changes = tuple(of_replaced_logs(self.shared.state.sources.values(), now_at))
            positions = {source: at.position for source, at in now_at.items()}
            self._quarantine.go_back(positions)  # first: a job that is killed here goes back again
            log_ids = {source: at.log_id for source, at in now_at.items() if at.log_id is not None}
            version = self._change_log.commit(changes_to_arrow(changes), positions, log_ids)
            touched = ReplicationState()
            for change in changes:
                if change.source_after is not None:
                    touched.put_source(change.source_after)
            self.shared.applied(touched, version)
        return before

    def sources(self) -> tuple[list[SourceState], int]:
        """Return the state of every source, and the change log version it follows from."""
        return self.shared.sources()

    def check_ours(self) -> None:
        """Check that no other writer has claimed the change log.

        Raises:
            TableRefused: another one has.
        """
        self._change_log.check_ours()

    @collected_after()
    def apply(self, rows: pa.Table, offsets: Mapping[str, int] = NO_LOG_IDS) -> BatchResult:
        """Apply one batch.

        Args:
            rows: as in ``schemas.bus_schema``.
            offsets: what the commit holds besides positions, by name: where reading continues.

        Raises:
            TableRefused: another job writes the same tables; nothing was written.
        """
        watch = Stopwatch()
        folded = self.shard.fold(rows, self._change_log, watch)
        self._quarantine.add(folded.refused, Micros(self._clock()))
        decoded = folded.decoded
        if decoded.positions:
            positions = {**decoded.positions, **offsets}
            version = self._change_log.commit(folded.rows, positions, decoded.log_ids, folded.unreported)
            self.shard.applied(folded, version)
        watch.lap("commit")
        return folded.result(self.shared.version, watch)


# The thread that writes the derived tables after the batches. It retries by itself, unless a retry cannot help.


# A round holds the GIL, so most of the time must be left to the batches; but the tables must not lag far.
REST_PER_WORK: Final = 5.0
LONGEST_REST_SECONDS: Final = 20.0
LONGEST_PAUSE_SECONDS: Final = 60.0
_log: Final = logging.getLogger(__name__)


class ProjectionThread(threading.Thread):
    """Writes the derived tables periodically until it is stopped.

    Attributes:
        error: what the last round failed with; None after a success.
        seconds: duration of the last round.
    """

    def __init__(self, project: Callable[[], object], seconds: float, is_due: Callable[[], bool]) -> None:
        """Write the tables every ``seconds`` if ``is_due()``, and once when it is stopped."""
        super().__init__(name="projections", daemon=True)
        self._round, self._seconds, self._is_due = project, seconds, is_due
        self._stopped = threading.Event()
        self.error: Exception | None = None
        self.seconds = 0.0

    def run(self) -> None:
        """Run a round, rest, repeat; after a failure rest longer each time."""
        pause = self._seconds
        while not self._stopped.wait(pause):
            if not self._is_due():
                continue
            if self._project():
                pause = max(self._seconds, min(self.seconds * REST_PER_WORK, LONGEST_REST_SECONDS))
            elif isinstance(self.error, (TableRefused, AssertionError)):
                return
            else:
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._project()

    def _project(self) -> bool:
        began = time.monotonic()
        try:
            self._round()
        except Exception as error:  # noqa: BLE001 - kept for the supervision of the query, which decides
            _log.warning("writing the derived tables failed: %s", sentence_of(error))
            self.error = error
        else:
            self.error = None
        self.seconds = time.monotonic() - began
        return self.error is None

    def stop(self) -> None:
        """Run a last round, and join the thread."""
        self._stopped.set()
        if self.is_alive():
            self.join()
