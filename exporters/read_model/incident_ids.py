"""Every id that finds an incident: short, long, of what was merged into it, under each name of its cluster. Pure.

An incident has a short id (``prod-17``: ``streaming.changes.incidents.short_ids``) and a long one. One that was merged
into another is found no more: its ids find the other one. Numbers of a cluster are unique over all names that it had,
so the number finds the incident under each of them, except under a name that another cluster had incidents under.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import number_of, short_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    Row = Mapping[str, Any]

ID_COLUMNS: Final = ("incident_id", "short_id", "merged_into", "cluster_id", "cluster")


def shown_id(row: Row) -> str:
    """Return the id that people see: the short one, or the long one of an incident that was opened without numbers."""
    return str(row["short_id"] or row["incident_id"])


def names_used(rows: Iterable[Row]) -> dict[str, frozenset[str]]:
    """Return the names under which each cluster had incidents, by cluster id."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        names[row["cluster_id"]].add(row["cluster"])
    return {cluster_id: frozenset(each) for cluster_id, each in names.items()}


def others_names(cluster_id: str, used: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the names under which other clusters had incidents; ``used`` is of :func:`names_used`."""
    return frozenset(name for other, names in used.items() if other != cluster_id for name in names)


def findable_names(used: Collection[str], name: str | None, others: Collection[str]) -> frozenset[str]:
    """Return the names under which the incidents of a cluster are found by their number: those of no other cluster."""
    return frozenset({*used, *(() if name is None else (name,))}.difference(others))


def ids_of(row: Row, names: Iterable[str]) -> Iterator[str]:
    """Yield the ids of an incident, under all ``names`` of its cluster."""
    yield row["incident_id"]
    if row["short_id"] is not None:
        yield row["short_id"]
        yield from (short_id(name, number_of(row["short_id"])) for name in names)


class Merges:
    """The incident that each of some rows is part of now."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Remember the rows that were merged into others."""
        self._merged = {row["incident_id"]: row for row in rows if row["merged_into"] is not None}

    def standing(self, incident_id: str) -> str:
        """Return the id of the incident that one is part of now: of itself, if it was merged into no other."""
        while incident_id in self._merged:
            incident_id = self._merged[incident_id]["merged_into"]
        return incident_id

    def parts(self) -> dict[str, list[Row]]:
        """Return the rows that were merged into each incident, directly or not, by its id."""
        parts: defaultdict[str, list[Row]] = defaultdict(list)
        for incident_id, row in self._merged.items():
            parts[self.standing(incident_id)].append(row)
        return dict(parts)
