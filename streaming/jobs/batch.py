"""One micro-batch of the replication query: rows of the bus in, one commit to the truth out.

What was applied already is skipped by position, so a batch may come again in any cut: after a crash of the driver, of
its JVM or of its Python, or with a new checkpoint. Knows Arrow and the tables, no Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from streaming.changes.change import Change, Subject
from streaming.changes.fold import fold
from streaming.changes.tombstones import without_expired
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.delta.projections import Projections
from streaming.delta.quarantine import Quarantine, Refused, reason_kind
from streaming.delta.rows import changes_to_arrow
from streaming.delta.truth import Truth
from streaming.delta.upkeep import EVERYTHING, Keep
from streaming.jobs.repeats import Repeats
from streaming.jobs.understood import understand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import SourceState

MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one batch did."""

    observations: int
    changes: int
    refused: int
    version: int
    seconds: float
    stages: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)


class Stopwatch:
    """Times the stages of a batch, one after the other."""

    def __init__(self) -> None:
        self._began = self._since = time.perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._since
        self._since = now

    @property
    def seconds(self) -> float:
        """The time since the begin."""
        return time.perf_counter() - self._began


def kinds_of(refused: Iterable[Refused]) -> Counter[str]:
    """Count what was refused by the kind of its reason."""
    return Counter(reason_kind(record.reason) for record in refused)


def now() -> Micros:
    """Give the wall clock; only for columns that say when something was written."""
    return Micros(time.time_ns() // 1000)


class ReplicationBatch:
    """Folds batches into the truth. The one writer of ``partition_changes``."""

    def __init__(self, directory: Path, keep: Keep = EVERYTHING) -> None:
        """Open the tables and rebuild the state from them.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._truth = Truth(directory, keep)
        self._quarantine = Quarantine(directory, Channel.REPLICATION)
        self.projections = Projections(directory, keep)
        self.shared = self.projections.recover(self._truth.version)
        self._repeats = Repeats()
        self._truth.go_on_after({source.source: source.position for source in self.shared.state.sources.values()})
        self._refused = self._not_yet_told()

    def _not_yet_told(self) -> Counter[str]:
        """Count what was refused and no change of its source has told: a kill may come in between."""
        told = Counter({source: state.quarantined for (_, source), state in self.shared.state.sources.items()})
        applied = {source: self._truth.position(source) for source in told}
        return self._quarantine.refused_up_to(applied) - told

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied."""
        return self._truth.positions

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""
        return self._truth.position(source)

    @property
    def is_empty(self) -> bool:
        """Whether the tables hold nothing yet."""
        return self.shared.version <= 0

    def sources(self) -> tuple[list[SourceState], int]:
        """Give how far every source came, and the version of the truth that says so."""
        return self.shared.sources()

    def check_ours(self) -> None:
        """Look whether somebody else writes the truth since.

        Raises:
            TableRefused: somebody does.
        """
        self._truth.check_ours()

    def apply(self, rows: pa.Table) -> Applied:
        """Apply one batch.

        Raises:
            TableRefused: another job writes the same tables; nothing was written.
        """
        watch = Stopwatch()
        understood = understand(rows, self._truth, Channel.REPLICATION, self._repeats)
        watch.lap("decode")
        folded = without_expired(self.shared.state, fold(self.shared.state, understood.observations))
        watch.lap("fold")
        self._quarantine.add(understood.refused, now())
        self._refused.update(record.source for record in understood.refused)
        if understood.positions:
            placed = [self._placed(change, understood.positions) for change in folded.changes]
            version = self._truth.commit(changes_to_arrow(placed), understood.positions)
            for change in placed:
                if change.source_after is not None:
                    after = change.source_after
                    folded.touched.sources[after.cluster_id, after.source] = after
            self.shared.applied(folded.touched, version)
            self._repeats.learn(understood.snapshots, folded.touched, self.shared.state)
        watch.lap("commit")
        return Applied(
            observations=understood.count,
            changes=len(folded.changes),
            refused=len(understood.refused),
            version=self.shared.version,
            seconds=watch.seconds,
            stages=watch.stages,
            reasons=kinds_of(understood.refused),
        )

    def _placed(self, change: Change, positions: Mapping[str, int]) -> Change:
        """Tell a source its position, which only the bus knows, and what was refused of it."""
        after = change.source_after
        if change.subject is not Subject.SOURCE or after is None:
            return change
        quarantined = after.quarantined + self._refused.pop(after.source, 0)
        position = positions.get(after.source, after.position)
        return replace(change, source_after=replace(after, position=position, quarantined=quarantined))
