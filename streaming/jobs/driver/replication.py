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
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streaming.changes.fold import fold
from streaming.changes.sources import newest_of, of_replaced_logs
from streaming.changes.state import Change, ReplicationState
from streaming.changes.tombstones import without_expired
from streaming.contracts.blocks import PartitionsBlock
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import CauseRevised, Channel, ConfigObserved, PartitionObserved, TopicRemoved
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.projections.projections import Projections
from streaming.delta.quarantine import Quarantine
from streaming.errors import TableRefused
from streaming.jobs.driver.decoded_batch import RepeatedBlocks, decode_batch
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons
from streaming.jobs.spark_errors import sentence_of
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import FoldResult, TopicKey
    from streaming.contracts.identifiers import ClusterId, LogPosition, TopicId
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import SourceState
    from streaming.delta.log.positions import LastCommon
    from streaming.delta.store.place import Place
    from streaming.jobs.driver.decoded_batch import DecodedBatch, ReadLog


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
        self._repeated, self._read = RepeatedBlocks(published), read
        self._refused = self._refused_since()

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
        decoded = decode_batch(rows, self._change_log, Channel.REPLICATION, self._repeated, self._read)
        watch.lap("decode")
        self.shared.state.load(set(_topics_of(decoded.observations, self.shared.state.topic_ids)))
        folded = without_expired(self.shared.state, fold(self.shared.state, decoded.observations))
        watch.lap("fold")
        self._quarantine.add(decoded.refused, Micros(self._clock()))
        self._refused.update(record.source for record in decoded.refused)
        if decoded.positions:
            unreported = set(self._refused)
            steps = (*folded.changes, *self._of_refused_only(folded, decoded.positions))
            changes = [self._with_position(change, decoded) for change in steps]
            only_sources = all(change.subject is Subject.SOURCE for change in changes)
            rows = changes_to_arrow(changes)
            counts = {source: self._refused[source] for source in unreported}
            version = self._change_log.commit(rows, {**decoded.positions, **offsets}, decoded.log_ids, counts)
            for change in changes:
                if change.source_after is not None:
                    after = change.source_after
                    folded.touched.sources[after.cluster_id, after.source] = after
            self.shared.applied(folded.touched, version, only_sources=only_sources)
            self._repeated.learn(decoded.blocks, folded.touched, self.shared.state)
        watch.lap("commit")
        return BatchResult(
            observations=decoded.count,
            changes=sum(change.count for change in folded.changes),
            refused=len(decoded.refused),
            version=self.shared.version,
            seconds=watch.seconds,
            stages=watch.stages,
            reasons=count_reasons(decoded.refused),
        )

    def _of_refused_only(self, folded: FoldResult, positions: Mapping[str, int]) -> Iterator[Change]:
        """Yield a change per source whose records in this batch were all refused: its position and count move, too.

        Refused records have no time, so the change carries that of the source's newest applied observation.
        """
        observed = {change.source_after.source for change in folded.changes if change.source_after is not None}
        for source in self.shared.state.sources.values():
            if source.source in positions and source.source not in observed:
                yield Change(subject=Subject.SOURCE, observation=newest_of(source), source_after=source)

    def _with_position(self, change: Change, decoded: DecodedBatch) -> Change:
        """Add to the state of a source its position, which only the bus knows, and its refused records."""
        after = change.source_after
        if change.subject is not Subject.SOURCE or after is None:
            return change
        quarantined = after.quarantined + self._refused.pop(after.source, 0)
        if after.source in decoded.positions:
            position, log_id = decoded.positions[after.source], decoded.log_ids.get(after.source)
            after = after._replace(position=position, log_id=log_id)
        return replace(change, source_after=after._replace(quarantined=quarantined))


def _topics_of(
    observations: Iterable[Observation], topic_ids: Mapping[tuple[ClusterId, str], TopicId]
) -> Iterator[TopicKey]:
    """Yield the topics whose partitions a fold will look up; ``topic_ids``: by cluster and name."""
    for observed in observations:
        if isinstance(observed, PartitionObserved | PartitionsBlock | CauseRevised | TopicRemoved):
            yield observed.cluster_id, observed.topic_id
        elif isinstance(observed, ConfigObserved):
            topic_id = topic_ids.get((observed.cluster_id, observed.topic))
            if topic_id is not None:
                yield observed.cluster_id, topic_id


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
