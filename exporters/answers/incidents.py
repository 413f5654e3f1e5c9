"""Incidents as an answer: those that are open or were, one in full with all that belongs to it, and their words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporters.answers import links
from exporters.answers.answer import Answer, AsOf, ClusterFreshness, Row, Sentence, read_time, refuse_unknown
from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import as_event, causes_explained
from exporters.answers.subject import past_of
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_archive import IncidentArchive, groups_beyond, read_names, was_open
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import is_recovered
from exporters.read_model.times import SECOND, Clock, span
from exporters.read_model.unreadable import UnreadableTables
from streaming.contracts.events import IncidentClass
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.contracts.tables import INCIDENTS, SOURCE_PROGRESS
from streaming.delta.log.queries import columns_of, open_ours, query, select, where_in
from streaming.errors import ConfigurationError
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporters.answers.answer import Question
    from exporters.answers.event_groups import EventGroup
    from exporters.answers.subject import Tables

NAME: Final = "incidents"
HELP: Final = "Incidents, open before closed, newest first; without a state or a time the open ones."
FILTERS: Final[Mapping[str, str]] = {
    "class": f"Class of the incident: {', '.join(IncidentClass)}.",
    "since": "Open incidents, and those that closed at this time or later: 15m, 7d, 2026-03-01T10:30:00Z.",
    "until": "Only those that began at this time or before.",
}
"""Every filter with its help."""
VALUES: Final[Mapping[str, tuple[str, ...]]] = {"class": tuple(IncidentClass)}
"""Filters with a closed set of values."""
MOST_EVENTS: Final = 10_000
MOST_MOMENTS: Final = 200
_LAST_OBSERVED: Final = (
    'SELECT cluster_id, "cluster", CAST(max(observed_until) AS BIGINT) AS newest FROM rows '
    "WHERE channel = 'replication' AND source_kind <> 'none' "
    'GROUP BY cluster_id, "cluster" ORDER BY "cluster", cluster_id'
)


def answer(tables: Tables, question: Question) -> Answer:
    """Answer with incidents; of the past those that were open then, with all that is known of them today.

    Raises:
        ConfigurationError: a filter has a value that it cannot have, or a pattern of a cluster fits none.
        TableUnreadable: they cannot be read.
    """
    given, clock, unreadable = question.filters, Clock(tables.now), UnreadableTables()
    for name in given:
        if name not in FILTERS:
            raise ConfigurationError(f"incidents have no filter {name}; there are {', '.join(FILTERS)}")
    archive, freshness = archive_of(tables), freshness_of(tables, unreadable)
    every = archive.all()
    names = read_names(tables.folder, unreadable) if tables.snapshot is None else {}
    names_there = {name for row in every for name in (row["cluster"], row["cluster_id"])}
    names_there |= {name for each in freshness for name in (each.name, each.id)} | {*names, *names.values()}
    refuse_unknown(question.clusters, names_there, "cluster")
    since, until = (read_time(name, given, clock) for name in ("since", "until"))
    as_of = None if question.at is None else AsOf(clock.read(question.at))
    rows = archive.between(since, until, question.clusters)
    if as_of is not None:
        past = past_of(tables)
        if past.range() is not None:
            past.check(as_of.moment)
        rows = [row for row in rows if was_open(row, as_of.moment)]
    rows = [row for row in rows if not given.get("class") or row["incident_class"] in _classes(given["class"])]
    is_whole = question.everything or since is not None or until is not None or as_of is not None
    shown = rows if is_whole else [row for row in rows if row["closed_at"] is None]
    chosen = [each for each in freshness if not question.clusters or _is_chosen(each, rows, question.clusters)]
    return Answer(
        columns=INCIDENT_COLUMNS,
        rows=shown,
        sentences=[] if shown else [_none(len(rows), question)],
        clusters=chosen,
        now=tables.now,
        as_of=as_of,
        unreadable={SOURCE_PROGRESS.name: "; ".join(unreadable.sentences)} if unreadable.sentences else {},
    )


def archive_of(tables: Tables) -> IncidentArchive:
    """Return the archive of these tables."""
    return tables.archive or IncidentArchive(tables.folder)


def freshness_of(tables: Tables, unreadable: UnreadableTables) -> list[ClusterFreshness]:
    """Return how old the data of each cluster is, by name."""
    if tables.snapshot is not None:
        return [
            ClusterFreshness(
                each.name,
                each.cluster.cluster_id,
                each.age_seconds(tables.now),
                each.is_stale(tables.now, tables.limits.stale_after),
            )
            for each in sorted(tables.snapshot.clusters.values(), key=lambda each: each.name)
        ]
    ages: list[ClusterFreshness] = []
    with unreadable.collected():
        if (table := open_ours(tables.folder, SOURCE_PROGRESS)) is not None:
            columns = columns_of(query(table, _LAST_OBSERVED), ("cluster_id", "cluster", "newest"))
            for cluster_id, name, newest in zip(*columns.values(), strict=True):
                if newest is not None:
                    age = max(0, tables.now - newest) / SECOND
                    ages.append(ClusterFreshness(name, cluster_id, age, age > tables.limits.stale_after))
    return ages


def _classes(given: Iterable[str]) -> list[str]:
    classes = [*given]
    for each in classes:
        if each not in [*IncidentClass]:
            raise ConfigurationError(f"class is {each!r}; use one of {', '.join(IncidentClass)}")
    return classes


def _is_chosen(cluster: ClusterFreshness, rows: Sequence[Row], patterns: Sequence[str]) -> bool:
    return patterns_of(*patterns)(cluster.name, cluster.id) or any(row["cluster_id"] == cluster.id for row in rows)


def _none(closed: int, question: Question) -> Sentence:
    if question.at is not None:
        return Sentence("no incident was open then")
    if question.everything or question.filters.get("since") or question.filters.get("until"):
        chosen = bool(question.filters or question.clusters)
        return Sentence("no incident matches" if chosen else "no incident has been recorded")
    more = f"; {closed:,} closed, --all shows them" if closed else ""
    return Sentence(f"no open incidents{' match' * bool(question.filters)}{more}")


# One incident.


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentReport:
    """Everything about one incident; values are of JSON's types, times UTC microseconds.

    Attributes:
        incident: its row, of ``INCIDENT_COLUMNS``.
        parts: ids of the incidents that were merged into it.
        explained_by: ids of those that account for the harm within planned work.
        groups: which groups stand beyond the end now, after an unclean election.
        before, after: ids of the incidents of the same cluster that began before and after it; None for none.
        evidence: the first events that are its evidence, rows of ``replication_events``.
        moments: what happened in its time, oldest first: ``at``, ``subject``, ``what``, ``cause``, ``partitions`` and
            ``events``, how many these are.
        is_whole: whether ``moments`` leaves nothing out.
        work: planned work that was announced for brokers in its time.
        freshness: of its cluster; None while that is unknown.
        url: of its page; None while ``export.url`` is not known.
        now: UTC microseconds by the clock of who answered.
        unreadable: why tables could not be read; what they would add is missing.
    """

    incident: Row
    parts: list[str]
    explained_by: list[str]
    groups: list[str]
    before: str | None
    after: str | None
    evidence: list[Row]
    moments: list[Row]
    is_whole: bool
    work: list[Row]
    freshness: dict[str, Any] | None
    url: str | None
    now: int
    unreadable: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> IncidentReport:
        """Return the report of a document of :meth:`document`, whatever else it holds.

        Raises:
            ValueError: something is missing.
        """
        try:
            return cls(**{name: document[name] for name in cls.__dataclass_fields__})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no incident: {error!r}") from error

    @property
    def stale(self) -> str | None:
        """Sentence that its data is old; None if it is not."""
        if self.freshness is None or not self.freshness["is_stale"]:
            return None
        cluster = ClusterFreshness(**self.freshness)
        age = "never" if cluster.age is None else f"last {span(cluster.age)} ago"
        return f"STALE: cluster {cluster.name} was observed {age}; what is said of this incident is that old"


def report(tables: Tables, any_id: str, url: str = "") -> IncidentReport:
    """Return everything about the incident that an id finds: short, or the beginning of a long one.

    Raises:
        IncidentUnknown: there is none, or several long ids begin so.
        TableUnreadable: incidents cannot be read.
    """
    archive, unreadable = archive_of(tables), UnreadableTables()
    row = archive.of_id(any_id)
    before, after = archive.neighbours(row)
    evidence, changes = archive.evidence(row, unreadable), archive.changes(row, MOST_EVENTS, unreadable)
    moments = [_moment(group) for group in by_moment(map(as_event, changes.events))]
    work = [each._asdict() for each in archive.announced_work(row, unreadable)]
    freshness = [each._asdict() for each in freshness_of(tables, unreadable) if each.id == row["cluster_id"]]
    return IncidentReport(
        incident=row,
        parts=archive.parts(row),
        explained_by=archive.explained_by(row),
        groups=_groups(tables, row, unreadable),
        before=None if before is None else shown_id(before),
        after=None if after is None else shown_id(after),
        evidence=evidence,
        moments=moments[:MOST_MOMENTS],
        is_whole=changes.is_complete and len(moments) <= MOST_MOMENTS,
        work=work,
        freshness=freshness[0] if freshness else None,
        url=url.rstrip("/") + links.incident(shown_id(row)) if url else None,
        now=tables.now,
        unreadable={INCIDENTS.name: "; ".join(unreadable.sentences)} if unreadable.sentences else {},
    )


def _moment(group: EventGroup) -> Row:
    partitions = {(event.topic, event.partition) for event in group.events if event.partition is not None}
    return {
        "at": group.at,
        "subject": group.subject,
        "what": group.what,
        "cause": group.cause,
        "partitions": len(partitions),
        "events": len(group.events),
    }


def _groups(tables: Tables, row: Row, unreadable: UnreadableTables) -> list[str]:
    if row["incident_class"] != IncidentClass.UNCLEAN_ELECTION:
        return []
    if tables.snapshot is not None:
        cluster = tables.snapshot.clusters.get(row["cluster_id"])
        offsets = () if cluster is None else cluster.samples.group_offsets or ()
        return groups_beyond(row, [each._asdict() for each in offsets])
    rows: list[Row] = []
    with unreadable.collected():
        table = open_ours(tables.folder, GROUP_OFFSETS)
        rows = select(table, GROUP_OFFSETS, where_in([row["cluster_id"]])).to_pylist()
    return groups_beyond(row, rows)


# An incident in words.


def lasted(row: Mapping[str, Any], clock: Clock) -> str:
    """Format the duration of an incident, so far if it is open and has not recovered."""
    if is_recovered(row):
        return f"recovered after {_so_far(row)}"
    if row["closed_at"] is None:
        return f"open {span(max(0, clock.now - row['opened_at']) / SECOND)}"
    return span((row["closed_at"] - row["opened_at"]) / SECOND)


def closed(row: Mapping[str, Any], clock: Clock) -> str:
    """Format when an incident was closed, or when an open one recovered and what it waits for."""
    if row["closed_at"] is not None:
        return f"{clock.iso(row['closed_at'])}, after {lasted(row, clock)}"
    if not is_recovered(row):
        return "still open"
    why = " for more restarts" if row["is_rolling"] else ", if nothing more happens,"
    key = f"job.incident_{'rolling_' if row['is_rolling'] else ''}gap"
    until = f"kept open{why} until {clock.iso(row['closes_at'])} ({key})"
    return f"not yet: recovered after {_so_far(row)}, at {clock.iso(row['recovered_at'])}; {until}"


def _so_far(row: Mapping[str, Any]) -> str:
    return span((row["updated_at"] - row["opened_at"]) / SECOND)


def suspects(row: Mapping[str, Any]) -> str:
    """List the suspected brokers with their scores, highest first; "?" if none was found."""
    scored = (suspect for suspect in row["suspects"] or () if suspect["score"])
    blamed = sorted(scored, key=lambda suspect: -suspect["score"])
    listed = ", ".join(f"{suspect['broker']} ({suspect['score']:.2f})" for suspect in blamed)
    return listed or ("none" if is_blameless(row) else "?")


def is_blameless(row: Mapping[str, Any]) -> bool:
    """Return whether an incident without suspects has none: who was stopped or moved by an order is not to blame."""
    is_scored = any(suspect["score"] is not None for suspect in row["suspects"] or ())
    return is_scored or row["incident_class"] in (IncidentClass.REASSIGNMENT, IncidentClass.UNSAFE_REASSIGNMENT)


def facts(explained: IncidentReport, clock: Clock) -> dict[str, str]:
    """Return what is said of an incident, each under the word that it is shown with, in order."""
    row = explained.incident
    peaks = {name: row[f"{name}_peak"] for name in ("under_replicated", "under_min_isr", "offline")}
    causes = (f"{each['cause']} {each['changes']:,}" for each in row["causes"] or ())
    every = {
        "incident": shown_id(row),
        "page": explained.url,
        "includes": ", ".join(explained.parts),
        "class": row["incident_class"],
        "severity": row["severity"],
        "summary": row["summary"],
        "meaning": row["consequence"],
        "groups": "; ".join(explained.groups),
        "harm by": ", ".join(explained.explained_by),
        "do first": row["next_step"],
        "opened": clock.iso(row["opened_at"]),
        "closed": closed(row, clock),
        "suspects": suspects(row),
        "topics": ", ".join(row["topics"] or ()),
        "causes": ", ".join(causes),
        "because": "; ".join(f"{cause}: {meaning}" for cause, meaning in causes_explained(_causes(row)).items()),
        "peak": ", ".join(f"{'?' if count is None else count} {name}" for name, count in peaks.items()),
        "planned": "; ".join(f"broker {each['broker']}: {each['text']}" for each in explained.work),
        "long id": row["incident_id"],
        "polled": said_of_evidence(explained.evidence),
    }
    return {name: str(text) for name, text in every.items() if text}


def _causes(row: Mapping[str, Any]) -> list[str]:
    return [each["cause"] for each in row["causes"] or ()]


def said_of_evidence(events: Iterable[Mapping[str, Any]]) -> str | None:
    """Say of the events of an incident that they are of polls, and how exact their times are; None if none is.

    An event of the metadata log has an offset there.
    """
    every = list(events)
    polled = [event for event in every if event["offset"] is None]
    if not polled:
        return None
    widest = max(event["occurred_not_after"] - event["occurred_not_before"] for event in polled)
    which = "the brokers were polled" if len(polled) == len(every) else f"{len(polled)} of these events are of polls"
    inferred = "so causes are inferred from what brokers answer, not proven"
    return f"{which}, {inferred}; each change happened at most {span(widest / SECOND)} before it was seen"
