"""Columns of brokers that the job derives and a snapshot lacks: what would happen if they stopped, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.state import BrokerState
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.delta.log.queries import open_ours, query, quoted

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

HOLDS: Final = ("led_partitions", "hosted_partitions", "in_sync_partitions")
# Columns of broker_state that a snapshot has fresher, and one that a terminal has no room for.
_NOT_FURTHER: Final = frozenset({*BrokerState._fields, *HOLDS, "isr_departures", "as_of_version"})

# Columns that the column for people says in words, and that itself.
IN_WORDS: Final = frozenset({"unavoidable_offline", "unavoidable_under_min_isr", "is_quorum_voter", "restart_reason"})

# Columns that come last in a line.
LESSER: Final = frozenset({"restart_order", "suspect_score", "unknown_min_isr_partitions", "offline_partitions"})


def further() -> Iterator[str]:
    """List the columns of ``broker_state`` that the job derives and a snapshot lacks, from the table's definition."""
    excluded = {*(column.name for column in BROKER_STATE_TABLE.columns[:2]), *_NOT_FURTHER}
    for column in BROKER_STATE_TABLE.columns:
        if (
            column.name not in excluded
            and (column.type in {"int", "long", "double", "boolean"} or column.name == "restart_reason")
            and "offset" not in column.name
        ):
            yield column.name


def further_columns(folder: Place, names: tuple[str, ...]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Read columns of ``broker_state``, by cluster id and broker."""
    table = open_ours(folder, BROKER_STATE_TABLE)
    by_cluster: dict[str, dict[int, Mapping[str, Any]]] = {}
    if table is not None:
        columns = quoted(("cluster_id", "broker", *names))
        for row in query(table, f"SELECT {columns} FROM rows").to_pylist():  # noqa: S608 - our own columns
            by_cluster.setdefault(row["cluster_id"], {})[row["broker"]] = {name: row[name] for name in names}
    return by_cluster
