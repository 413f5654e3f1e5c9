"""How far the sources of a channel of samples were applied: the state that the fold keeps of replication sources."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from streaming.changes.state import SourceKey
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import SourceState
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.progress import ProgressTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.observations import Channel


class SampleSources:
    """The sources of one channel."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Read the state that the table holds.

        Args:
            directory: of the tables.
            channel: of the sources.
        """
        sources = ProgressTable(directory, channel).sources()
        self._quarantined = Counter({source.source: source.quarantined for source in sources})
        self._states: dict[SourceKey, SourceState] = {(source.cluster_id, source.source): source for source in sources}

    def count_at_least(self, quarantined: Mapping[str, int]) -> None:
        """Count records of each source that are in ``quarantine``.

        Some may have come there after the last report of the sources, and before the job was killed.
        """
        self._quarantined |= Counter(quarantined)
        self._states = {key: self._counted(state) for key, state in self._states.items()}

    def states(self) -> list[SourceState]:
        """Return every source; safe to call from another thread while a batch is applied."""
        return list(self._states.values())

    def go_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back whose logs are other ones now, each to its last record that both have.

        Of a log that has no record in common with the one before, its first sample says when it was collected.
        """
        for key, state in self._states.items():
            if (at := now_at.get(state.source)) is not None:
                gone_back = state if at.position >= 0 else state._replace(observed_until=None, collected_at=None)
                self._states[key] = gone_back._replace(position=at.position, log_id=at.log_id)

    def advance(
        self,
        samples: Iterable[pa.Table],
        refused: Mapping[str, int],
        positions: Mapping[str, int],
        log_ids: Mapping[str, int] = NO_LOG_IDS,
    ) -> None:
        """Move the sources of an applied batch forward.

        Args:
            samples: tables with cluster_id, cluster, source, and collected_at in microseconds.
            refused: how many records of each source were unparseable, and not in ``quarantine`` before.
            positions: newest position of each source.
            log_ids: of the logs that have one.
        """
        self._quarantined.update(refused)
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._observe(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            if state.source in positions:
                position, log_id = positions[state.source], log_ids.get(state.source)
                self._states[key] = state._replace(position=position, log_id=log_id)
            self._states[key] = self._counted(self._states[key])

    def _counted(self, state: SourceState) -> SourceState:
        """Count what was refused, also before the first sample said which cluster the source is of."""
        return state._replace(quarantined=self._quarantined[state.source])

    def _observe(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        state = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, authority=SourceKind.NONE
        )
        newest = max(moment, state.collected_at or moment)
        self._states[cluster_id, source] = state._replace(cluster=cluster, observed_until=newest, collected_at=newest)
