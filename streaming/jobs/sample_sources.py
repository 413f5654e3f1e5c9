"""How far the sources of a channel of samples came: what the fold keeps of the sources of replication."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from streaming.changes.state import SourceKey, SourceState
from streaming.contracts.observations import Authority
from streaming.delta.progress import ProgressTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.observations import Channel


class SampleSources:
    """The sources of one channel."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Go on from what the tables say."""
        known = [_state(row) for row in ProgressTable(directory, channel).rows()]
        self._states: dict[SourceKey, SourceState] = {(each.cluster_id, each.source): each for each in known}

    def states(self) -> list[SourceState]:
        """Give every source; safe beside a batch."""
        return list(self._states.values())

    def told(self, samples: Iterable[pa.Table], refused: Mapping[str, int], positions: Mapping[str, int]) -> None:
        """Take over what an applied batch said.

        Args:
            samples: tables with cluster_id, cluster, source, and collected_at in microseconds.
            refused: how many records of each source could not be read.
            positions: how far each source came.
        """
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._saw(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            position, bad = positions.get(state.source, state.position), refused.get(state.source, 0)
            self._states[key] = replace(state, position=position, quarantined=state.quarantined + bad)

    def _saw(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        known = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, authority=Authority.NONE
        )
        newest = max(moment, known.collected_at or moment)
        self._states[cluster_id, source] = replace(known, cluster=cluster, observed_until=newest, collected_at=newest)


def _state(row: Mapping[str, Any]) -> SourceState:
    told = {item.name: row[item.name] for item in fields(SourceState) if row.get(item.name) is not None}
    return SourceState(**{**told, "authority": Authority(row["authority"])})
