"""One micro-batch of the replication query: rows of the bus in, one commit to the truth out.

What was applied already is skipped by position, so a batch may come again in any cut: after a crash of the driver, of
its JVM or of its Python, or with a new checkpoint. Knows Arrow and the tables, no Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow.compute as pc

from streaming.changes.change import Change, Subject
from streaming.changes.fold import fold
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.delta.projections import Projections
from streaming.delta.quarantine import Quarantine, Refused
from streaming.delta.rows import changes_to_arrow
from streaming.delta.truth import Truth
from streaming.errors import Quarantined

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.observations import Observation

MICROS: Final = 1_000_000


class Positions(Protocol):
    """Whoever knows how far each source was applied."""

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A batch after reading: observations in order, what was refused, and how far each source came."""

    observations: tuple[Observation, ...]
    refused: tuple[Refused, ...]
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one batch did."""

    observations: int
    changes: int
    refused: int
    version: int
    seconds: float


def now() -> Micros:
    """Give the wall clock; only for columns that say when something was written."""
    return Micros(time.time_ns() // 1000)


def understand(rows: pa.Table, applied: Positions, channel: Channel) -> Understood:
    """Read the rows of a batch that were not applied yet, merged by time; each source keeps its own order.

    Args:
        rows: as in ``schemas.bus_schema``.
        applied: what was applied already.
        channel: where they were read; what belongs elsewhere is refused.
    """
    fresh = _fresh(rows, applied).sort_by([("source", "ascending"), ("position", "ascending")])
    observations: list[tuple[int, Observation]] = []
    latest: dict[str, int] = {}
    refused: list[Refused] = []
    positions: dict[str, int] = {}
    for row in fresh.to_pylist():
        source, position = row["source"], row["position"]
        positions[source] = position
        try:
            observed = _observation(row, channel)
            latest[source] = max(latest.get(source, 0), observed.occurred_not_after)
            observations.append((latest[source], observed))
        except Quarantined as reason:
            refused.append(Refused(source=source, position=position, reason=str(reason), raw=row["payload"]))
    merged = sorted(observations, key=lambda timed: timed[0])  # stable: a source's own order stays
    return Understood(tuple(observed for _, observed in merged), tuple(refused), positions)


def _fresh(rows: pa.Table, applied: Positions) -> pa.Table:
    keep = None
    for source in pc.unique(rows["source"]).to_pylist():
        newer = pc.and_(pc.equal(rows["source"], source), pc.greater(rows["position"], applied.position(source)))
        keep = newer if keep is None else pc.or_(keep, newer)
    return rows if keep is None else rows.filter(keep)


def _observation(row: Mapping[str, Any], channel: Channel) -> Observation:
    if row["damage"] is not None:
        raise Quarantined(row["damage"])
    observed = decode(row["payload"])
    if observed.channel is not channel:
        raise Quarantined(f"{observed.kind} does not belong on the channel {channel}")
    return observed


class ReplicationBatch:
    """Folds batches into the truth. The one writer of ``partition_changes``."""

    def __init__(self, directory: Path) -> None:
        """Open the tables and rebuild the state from them.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._truth = Truth(directory)
        self._quarantine = Quarantine(directory, Channel.REPLICATION)
        self.projections = Projections(directory)
        self.shared = self.projections.recover(self._truth.version)
        self._refused: Counter[str] = Counter()  # not yet told by a change of their source

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
        began = time.perf_counter()
        understood = understand(rows, self._truth, Channel.REPLICATION)
        folded = fold(self.shared.state, understood.observations)
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
        return Applied(
            observations=len(understood.observations),
            changes=len(folded.changes),
            refused=len(understood.refused),
            version=self.shared.version,
            seconds=time.perf_counter() - began,
        )

    def _placed(self, change: Change, positions: Mapping[str, int]) -> Change:
        """Tell a source its position, which only the bus knows, and what was refused of it."""
        after = change.source_after
        if change.subject is not Subject.SOURCE or after is None:
            return change
        quarantined = after.quarantined + self._refused.pop(after.source, 0)
        position = positions.get(after.source, after.position)
        return replace(change, source_after=replace(after, position=position, quarantined=quarantined))
