"""The list of incidents, filtered by cluster, class and time; and an incident as a row of any page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.read_model.incident_archive import is_of
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.incident_sentences import sentence_of
from exporters.read_model.snapshot import SECOND
from exporters.web.pages.page import (
    OF_SEVERITY,
    Inputs,
    Level,
    Notice,
    PageLink,
    PageModel,
    PageRefused,
    Row,
    count,
    frame_of,
    lasting,
    notices_of,
    words_of,
)
from streaming.contracts.events import IncidentClass
from streaming.durations import seconds_of
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN: Final = 200
SPANS: Final = ("1d", "7d", "30d", "90d")


class ListedIncident(NamedTuple):
    """One incident."""

    id: str
    path: str
    cluster: str
    cluster_path: str
    level: Level
    kind: str
    summary: str
    opened_at: int
    closed_at: int | None
    lasted: str
    suspects: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentsPage(PageModel):
    """Incidents, open before closed, newest first; ``left_out``: how many more there are."""

    template: ClassVar[str] = "incidents.html"
    rows: tuple[ListedIncident, ...]
    left_out: int
    clusters: tuple[str, ...]
    classes: tuple[str, ...]
    spans: tuple[str, ...]
    cluster: str
    kind: str
    since: str


def incidents_page(inputs: Inputs) -> IncidentsPage:
    """Return the list of incidents."""
    chosen = {name: _only(inputs.query, name) for name in ("cluster", "class", "since")}
    rows = _filtered(inputs, chosen)
    open_now = sum(is_open(row, inputs.now) for row in rows)
    heading = f"Incidents of {chosen['cluster']}" if chosen["cluster"] else "Incidents"
    return IncidentsPage(
        **frame_of(inputs),
        title=f"{count(open_now, 'open incident')}, {len(rows) - open_now:,} closed - isrwatch",
        heading=heading,
        notices=(*notices_of(inputs), *_as_known_today(inputs)),
        rows=tuple(incident_row(inputs, row) for row in rows[:SHOWN]),
        left_out=max(0, len(rows) - SHOWN),
        clusters=tuple(sorted({*inputs.clusters, *([chosen["cluster"]] if chosen["cluster"] else [])})),
        classes=tuple(IncidentClass),
        spans=SPANS,
        cluster=chosen["cluster"],
        kind=chosen["class"],
        since=chosen["since"],
    )


def incidents_of(inputs: Inputs, cluster_id: str | None = None) -> list[Row]:
    """Return the incidents of all clusters or one, as they are known today; of the past those that had begun by then.

    Raises:
        PageRefused: they cannot be read.
    """
    if inputs.archive is None:
        return []
    try:
        rows: Sequence[Row] = inputs.archive.all()
    except IsrwatchError as error:
        raise PageRefused(503, f"the incidents cannot be read: {error}") from error
    return [
        row
        for row in rows
        if cluster_id in (None, row["cluster_id"]) and (inputs.at is None or row["opened_at"] <= inputs.now)
    ]


def incident_row(inputs: Inputs, row: Row) -> ListedIncident:
    """Return an incident as a row; a cluster that has another name now leads to that."""
    inputs.give_way()
    name = next(
        (name for name, each in inputs.clusters.items() if each.cluster.cluster_id == row["cluster_id"]), row["cluster"]
    )
    return ListedIncident(
        id=shown_id(row),
        path=links.incident(shown_id(row), inputs.at),
        cluster=name,
        cluster_path=links.cluster(name, inputs.at),
        level=level_of_incident(row),
        kind=words_of(row["incident_class"]),
        summary=sentence_of(row).brief,
        opened_at=row["opened_at"],
        closed_at=None if is_open(row, inputs.now) else row["closed_at"],
        lasted=lasted(row, inputs.now, is_old=is_old(inputs, row)),
        suspects=", ".join(f"broker {each['broker']}" for each in blamed(row)),
    )


def level_of_incident(row: Row) -> Level:
    """Return how bad an incident is, or was."""
    return OF_SEVERITY.get(row["severity"], Level.WARNING)


def blamed(row: Row) -> list[Mapping[str, float]]:
    """Return the suspects, the likeliest first; a score of 0 makes no suspect."""
    return sorted((each for each in row["suspects"] or () if each["score"]), key=lambda each: -each["score"])


def is_old(inputs: Inputs, row: Row) -> bool:
    """Return whether nothing new is known of the cluster of an incident."""
    cluster = inputs.snapshot.clusters.get(row["cluster_id"])
    return inputs.past is None and (cluster is None or inputs.is_stale(cluster))


def lasted(row: Row, now: int, *, is_old: bool = False) -> str:
    """Write the duration of an incident by a moment, so far if it is open.

    ``is_old``: nothing newer is known of its cluster, so it is unknown whether it still lasts.
    """
    if not is_open(row, now):
        return str(lasting((row["closed_at"] - row["opened_at"]) / SECOND))
    if is_old:
        return "open when last observed"
    recovered = row["recovered_at"]
    if recovered is not None and recovered <= now:
        return f"recovered after {lasting((recovered - row['opened_at']) / SECOND)}"
    return f"open for {lasting((now - row['opened_at']) / SECOND)}"


def is_open(row: Row, now: int) -> bool:
    """Return whether an incident was open at a moment."""
    return row["closed_at"] is None or row["closed_at"] > now


def _filtered(inputs: Inputs, chosen: Mapping[str, str]) -> list[Row]:
    names: dict[str, str] = {each.cluster.cluster_id: name for name, each in inputs.clusters.items()}
    since, cluster, kind = _since(chosen["since"], inputs.now), chosen["cluster"], chosen["class"]
    rows = incidents_of(inputs)
    if cluster and not any(_is_of(cluster, names, row) for row in rows):
        _refuse_unknown(inputs, cluster, names)
    return [
        row
        for row in rows
        if (since is None or row["closed_at"] is None or row["closed_at"] >= since)
        and (not cluster or _is_of(cluster, names, row))
        and kind in ("", row["incident_class"])
    ]


def _refuse_unknown(inputs: Inputs, cluster: str, names: Mapping[str, str]) -> None:
    """Refuse an unknown cluster without incidents: an empty list would look good."""
    chosen = patterns_of(cluster)
    if not any(cluster == name or chosen(name, cluster_id) for cluster_id, name in names.items()):
        every = PageLink("the incidents of all clusters", links.incidents(inputs.at))
        raise PageRefused(404, f"there is no cluster {cluster!r}", [every])


def _is_of(name: str, names: Mapping[str, str], row: Row) -> bool:
    """Return whether an incident is of a cluster: by its name as it is written, or as a pattern."""
    return name in (row["cluster"], names.get(row["cluster_id"])) or is_of(patterns_of(name), names, row)


def _since(text: str, now: int) -> int | None:
    try:
        return now - int(seconds_of("since", text) * SECOND) if text else None
    except ConfigurationError as error:
        raise PageRefused(400, str(error)) from error


def _only(query: Mapping[str, Sequence[str]], name: str) -> str:
    values = [value for value in query.get(name, ()) if value]
    if len(values) > 1:
        raise PageRefused(400, f"{name} is given {len(values)} times; give it once")
    if name == "class" and values and values[0] not in [*IncidentClass]:
        raise PageRefused(400, f"class is {values[0]!r}; use one of {', '.join(IncidentClass)}")
    return values[0] if values else ""


def _as_known_today(inputs: Inputs) -> Iterable[Notice]:
    if inputs.at is not None:
        yield Notice(Level.INFO, "Incidents that had begun by then; their sentences are as known today.")
