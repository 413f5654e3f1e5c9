"""Closed incidents: how long they stay in ``incidents``, and how many have expired."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.events import IncidentClass
from streaming.contracts.identifiers import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from streaming.delta.log.commit import StoresTransactions

NEWEST_RETAINED: Final = 1000
"""Closed incidents, or spells, of a cluster that stay if history is kept for ever, which applies to changes only."""
_TIME: Final = pa.timestamp("us", tz="UTC")

IncidentCounts = Counter[tuple[str, str]]
"""Number of incidents by (cluster id, class), without those that were merged into another one."""


def retained(
    closed: pa.Table, days: int, now: int, still_open: Collection[str] = ()
) -> tuple[pa.Table, IncidentCounts]:
    """Return the closed incidents that stay, and the counts of the others.

    One that was merged into another stays for as long as that one, because its ids find it. Without ``days`` the newest
    ``NEWEST_RETAINED`` of each cluster stay.
    """
    if days:
        stays = pc.greater_equal(closed["closed_at"], pa.scalar(now - days * DAY, _TIME))
    else:
        stays = are_newest(closed, "closed_at", "incident_id")
    stays = pc.or_(stays, _are_parts(closed, {*closed.filter(stays)["incident_id"].to_pylist(), *still_open}))
    gone = closed.filter(pc.and_(pc.invert(stays), pc.is_null(closed["merged_into"])))
    counts = zip(gone["cluster_id"].to_pylist(), gone["incident_class"].to_pylist(), strict=True)
    return closed.filter(stays), Counter(counts)


def within_history(spells: pa.Table, row_id: str, days: int, now: int) -> pa.Table:
    """Return the spells, all over, that stay; arguments as above, and the column of their id."""
    if days:
        begin = pa.scalar(now - days * DAY, _TIME)
        return spells.filter(pc.greater_equal(spells["ended_at"], begin))
    return spells.filter(are_newest(spells, "ended_at", row_id))


def are_newest(rows: pa.Table, ended: str, row_id: str) -> pa.ChunkedArray:
    """Return, per row, whether it is one of the ``NEWEST_RETAINED`` of its cluster, by the columns of end and id."""
    seen: Counter[str] = Counter()
    newest = set()
    cluster_ids = rows["cluster_id"].to_pylist()
    for place in pc.sort_indices(rows, [(ended, "descending"), (row_id, "ascending")]).to_pylist():
        seen[cluster_ids[place]] += 1
        if seen[cluster_ids[place]] <= NEWEST_RETAINED:
            newest.add(place)
    return pa.chunked_array([pa.array([place in newest for place in range(len(rows))], pa.bool_())])


def _are_parts(closed: pa.Table, staying: Collection[str]) -> pa.ChunkedArray:
    """Return, per row, whether it is part of an incident that stays, directly or not."""
    ids, into = closed["incident_id"].to_pylist(), closed["merged_into"].to_pylist()
    merged = {each: other for each, other in zip(ids, into, strict=True) if other is not None}

    def is_part(incident_id: str) -> bool:
        while (other := merged.get(incident_id)) is not None:
            if other in staying:
                return True
            incident_id = other
        return False

    return pa.chunked_array([pa.array(map(is_part, ids), pa.bool_())])


def expired_counts(table: StoresTransactions, cluster_ids: Iterable[str]) -> IncidentCounts:
    """Read how many closed incidents of these clusters have expired."""
    counts = {
        (each, kind.value): table.transaction_version(_name(each, kind))
        for each in cluster_ids
        for kind in IncidentClass
    }
    return Counter({key: int(count) for key, count in counts.items() if count})


def counted(table: StoresTransactions, expired: IncidentCounts) -> dict[str, int]:
    """Return the transactions that add newly expired incidents to the counts so far."""
    before = expired_counts(table, {cluster_id for cluster_id, _ in expired})
    return {_name(*key): count + before[key] for key, count in expired.items()}


def _name(cluster_id: str, incident_class: str) -> str:
    return f"expired/{incident_class}/{cluster_id}"
