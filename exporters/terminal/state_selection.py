"""Selection by the options of ``isrwatch state``, and the printing of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporters.terminal.state_view import text
from exporters.terminal.table_layout import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.read_model.unreadable import UnreadableTables
    from exporters.terminal.output import RowOutput
    from streaming.delta.store.place import Place

    Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StateSelection:
    """Selection by the options of ``isrwatch state``.

    Attributes:
        clusters: each with its row.
        topics: patterns of names.
        folder: of the tables.
        is_now: whether it is the present state, not one as of a version.
        everything: include healthy partitions.
        unreadable: takes the tables that cannot be read.
        oldest_ages: up to which age samples count, in seconds, by table.
        poll_intervals: how often the brokers of a cluster of the configuration are polled, in seconds, by its name.
    """

    clusters: list[tuple[ClusterSnapshot, Row]]
    topics: tuple[str, ...]
    folder: Place
    is_now: bool
    everything: bool
    unreadable: UnreadableTables
    oldest_ages: Mapping[str, float]
    poll_intervals: Mapping[str, float] = field(default_factory=dict)

    @property
    def cluster_ids(self) -> set[str]:
        """The ids of the clusters."""
        return {cluster.cluster.cluster_id for cluster, _ in self.clusters}


def print_rows(
    output: RowOutput,
    selection: StateSelection,
    rows: list[Row],
    fields: tuple[Field, ...],
    style: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print rows, with a column for the cluster if there is more than one."""
    owner = (Field("cluster", text("cluster")),) if len(selection.clusters) > 1 else ()
    output.print(rows, (*owner, *fields), columns_of_rows(rows), style)


def columns_of_rows(rows: list[Row]) -> Iterable[str]:
    """Return the columns that any of the rows has, each once."""
    return dict.fromkeys(name for row in rows for name in row)
