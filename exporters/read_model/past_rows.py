"""Conditions and incidents as of a moment, from rows that say when each began and ended. Pure: rows in, rows out.

What was written over since is left out, never shown as of then. The sentence of an incident is as it is known today.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_ids import ID_COLUMNS, Merges, names_used, others_names
from exporters.read_model.snapshot import ClusterIncidents
from streaming.contracts.conditions import RECENT
from streaming.delta.log.queries import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHANGING: Final = (
    "under_replicated_now", "under_min_isr_now", "offline_now",
    "under_replicated_seconds", "under_min_isr_seconds", "offline_seconds",
    "under_replicated_partition_seconds", "under_min_isr_partition_seconds", "offline_partition_seconds",
    "isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "evidence_events", "closes_at",
)  # fmt: skip
"""Columns of an incident that count on while it is open: what they were at a moment is not kept."""


def spells_at(rows: pa.Table, at: int) -> pa.Table:
    """Return the spells of ``conditions`` that had begun by a moment, those that ended later as if they lasted.

    Short ones that ended long before are left out, as of the present. A reassignment that got on later is taken to
    have got on at the moment: when it did before is not kept.
    """
    begun = _begun(rows, "began_at", at)
    oldest = _moment(at - RECENT, begun, "ended_at")
    long_ago = pc.fill_null(pc.less(begun["ended_at"], oldest), fill_value=False)
    lasting = begun.filter(pc.invert(long_ago))
    is_chained = pc.is_in(begun["since"], value_set=lasting["since"].combine_chunks())
    kept = begun.filter(pc.or_(pc.invert(long_ago), is_chained))
    return _not_after(_still_open(kept, "ended_at", at), "progressed_at", at)


def sampled_spells_at(rows: pa.Table, at: int) -> pa.Table:
    """Return the spells of ``sampled_conditions`` that lasted at a moment, as they were then."""
    begun = _begun(rows, "began_at", at)
    lasted = begun.filter(pc.fill_null(pc.greater(begun["ended_at"], _moment(at, begun, "ended_at")), fill_value=True))
    return _still_open(_still_open(_not_after(lasted, "shown_at", at), "ended_at", at), "left_out_at", at)


def incidents_at(rows: pa.Table, at: int) -> dict[str, ClusterIncidents]:
    """Return the incidents that were open at a moment, by cluster id; what was merged is part of the other one.

    Args:
        rows: every incident, with ``INCIDENT_COLUMNS``.
        at: UTC microseconds.
    """
    ids = columns_of(rows, ID_COLUMNS)
    ids_of_rows = [dict(zip(ids, values, strict=True)) for values in zip(*ids.values(), strict=True)]
    names, parts = names_used(ids_of_rows), Merges(ids_of_rows).parts()
    lasted = _begun(rows, "opened_at", at)
    is_open = pc.fill_null(pc.greater(lasted["closed_at"], _moment(at, lasted, "closed_at")), fill_value=True)
    lasted = lasted.filter(pc.and_(is_open, pc.is_null(lasted["merged_into"])))
    columns = columns_of(lasted, INCIDENT_COLUMNS)
    then: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for values in zip(*(columns[name] for name in INCIDENT_COLUMNS), strict=True):
        row = incident_at(dict(zip(INCIDENT_COLUMNS, values, strict=True)), at)
        then[row["cluster_id"]].append(row)
    return {
        cluster_id: ClusterIncidents(
            open=tuple(sorted(then[cluster_id], key=lambda row: (-row["opened_at"], row["incident_id"]))),
            parts={row["incident_id"]: tuple(parts.get(row["incident_id"], ())) for row in then[cluster_id]},
            names=names.get(cluster_id, frozenset()),
            others_names=others_names(cluster_id, names),
        )
        for cluster_id in names
    }


def incident_at(row: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the row of an incident that was open at a moment, without what it was written over with since.

    Its sentences, class, suspects and peaks are as they are known today.
    """
    recovered, updated = row["recovered_at"], row["updated_at"]
    return {
        **row,
        **dict.fromkeys(_CHANGING),
        "closed_at": None,
        "recovered_at": recovered if recovered is not None and recovered <= at else None,
        "updated_at": min(updated, at),
    }


def _begun(rows: pa.Table, column: str, at: int) -> pa.Table:
    return rows.filter(pc.less_equal(rows[column], _moment(at, rows, column)))


def _still_open(rows: pa.Table, column: str, at: int) -> pa.Table:
    """Set times after a moment to null: they were not known then."""
    return _replaced_after(rows, column, at, pa.scalar(None, rows[column].type))


def _not_after(rows: pa.Table, column: str, at: int) -> pa.Table:
    """Set times after a moment to the moment."""
    return _replaced_after(rows, column, at, _moment(at, rows, column))


def _replaced_after(rows: pa.Table, column: str, at: int, value: pa.Scalar) -> pa.Table:
    is_later = pc.fill_null(pc.greater(rows[column], _moment(at, rows, column)), fill_value=False)
    values = pc.if_else(is_later, value, rows[column])
    return rows.set_column(rows.column_names.index(column), rows.schema.field(column), values)


def _moment(at: int, rows: pa.Table, column: str) -> pa.Scalar:
    return pa.scalar(at, rows.schema.field(column).type)
