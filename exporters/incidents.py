"""Incidents: taken over from their table, and what is told of them. Few are open; those that are over are counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.columns import columns_of, rows_as
from exporters.metric import OWN_PREFIX, ClusterMetric, Kind, Sample, Sight
from streaming.contracts.incidents import IncidentClass
from streaming.contracts.tables import AS_OF, INCIDENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from exporters.changes import SnapshotDraft
    from exporters.snapshot import ClusterSnapshot

Row = dict[str, Any]

_CARRIED: Final = "carried"
# What the job alone needs is not told.
_OWN: Final = frozenset({_CARRIED, *(column.name for column in AS_OF)})
INCIDENT_COLUMNS: Final = tuple(name for name in INCIDENTS.column_names() if name not in _OWN)
# What the job carries of an incident can be large; whether it carries anything tells if the incident may still change.
IS_OVER_SELECTED: Final = f'"{_CARRIED}" IS NULL AS is_over'


class Told(NamedTuple):
    """What is read of every incident; ``is_over``: it can change no more."""

    cluster_id: str
    incident_class: str
    closed_at: int | None
    merged_into: str | None
    is_over: bool


@dataclass(frozen=True, slots=True, eq=False)
class Incidents:
    """The incidents of one cluster.

    Attributes:
        open: rows of the table, times in microseconds, newest first.
        over: how many there were of each class that can change no more, those that became part of another left out.
    """

    open: tuple[Row, ...] = ()
    over: Mapping[str, int] = field(default_factory=dict)

    def open_by_class(self) -> Mapping[str, int]:
        """Count those that are open."""
        return Counter(row["incident_class"] for row in self.open)


NO_INCIDENTS: Final = Incidents()


def put_incidents(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``incidents``; of those that are closed no more is read than what counts them."""
    over: dict[str, Counter[str]] = defaultdict(Counter)
    still_open: dict[str, list[Row]] = defaultdict(list)
    for index, told in enumerate(rows_as(Told, columns_of(rows, Told._fields), rows.num_rows)):
        if told.closed_at is None:
            still_open[told.cluster_id].append(_row(rows.slice(index, 1)))
        elif told.is_over and told.merged_into is None:
            over[told.cluster_id][told.incident_class] += 1
    draft.put_incidents({
        cluster_id: Incidents(tuple(sorted(still_open[cluster_id], key=_newest_first)), over[cluster_id])
        for cluster_id in {*over, *still_open}
    })  # fmt: skip


def _row(one: pa.Table) -> Row:
    return {name: values[0] for name, values in columns_of(one, INCIDENT_COLUMNS).items()}


def _newest_first(row: Row) -> tuple[int, str]:
    return -row["opened_at"], row["incident_id"]


def _by_class(
    count: Callable[[Incidents], Mapping[str, int]],
) -> Callable[[ClusterSnapshot, int], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
        if cluster.incidents is None:
            return
        known = count(cluster.incidents)
        for kind in IncidentClass:
            yield (cluster.name, kind.value), known.get(kind.value, 0)

    return samples


LABELS: Final = ("cluster", "class")
INCIDENT_METRICS: Final = (
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_open_incidents",
        labels=LABELS,
        help="Incidents that are open, by class; it follows the table incidents a second or two behind.",
        samples=_by_class(Incidents.open_by_class),
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_closed_incidents_total",
        kind=Kind.COUNTER,
        labels=LABELS,
        help="Incidents that are over, by class; counted once they can change no more, up to 15 minutes later.",
        sight=Sight.NONE,
        samples=_by_class(lambda incidents: incidents.over),
    ),
)
