"""How far the sources of a channel of samples were applied: the state that the fold keeps of replication sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.changes.state import SourceKey
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import SourceState
from streaming.delta.progress import ProgressTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.observations import Channel


class SampleSources:
    """The sources of one channel."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Read the state that the table holds."""
        sources = ProgressTable(directory, channel).sources()
        self._states: dict[SourceKey, SourceState] = {(source.cluster_id, source.source): source for source in sources}

    def states(self) -> list[SourceState]:
        """Return every source; safe to call from another thread while a batch is applied."""
        return list(self._states.values())

    def advance(self, samples: Iterable[pa.Table], refused: Mapping[str, int], positions: Mapping[str, int]) -> None:
        """Move the sources of an applied batch forward.

        Args:
            samples: tables with cluster_id, cluster, source, and collected_at in microseconds.
            refused: how many records of each source were unparseable.
            positions: newest position of each source.
        """
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._observe(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            position, bad = positions.get(state.source, state.position), refused.get(state.source, 0)
            self._states[key] = state._replace(position=position, quarantined=state.quarantined + bad)

    def _observe(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        state = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, authority=SourceKind.NONE
        )
        newest = max(moment, state.collected_at or moment)
        self._states[cluster_id, source] = state._replace(cluster=cluster, observed_until=newest, collected_at=newest)
