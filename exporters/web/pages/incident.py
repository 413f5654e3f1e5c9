"""The page of an incident: what happened, what to do first, who, why, when, and what to copy.

Its sentences are those of its row, which the job writes. What happened in its time is read from the events.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.answers.brokers import state_name
from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import as_event, clock
from exporters.answers.incidents import is_blameless
from exporters.answers.silences import silence_link
from exporters.read_model.incident_archive import IncidentArchive, IncidentUnknown, groups_beyond
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.incident_sentences import sentence_of
from exporters.read_model.snapshot import SECOND, is_recovered
from exporters.web.pages.broker import MomentRow, cause_rows, moment_row
from exporters.web.pages.cluster import runbook_path, trail_of
from exporters.web.pages.drawing import Drawing
from exporters.web.pages.incidents import blamed, is_old, is_open, lasted, level_of_incident
from exporters.web.pages.page import (
    Inputs,
    Level,
    Notice,
    PageLink,
    PageModel,
    PageMoved,
    PageRefused,
    Row,
    frame_of,
    lasting,
    notices_of,
    words_of,
)
from exporters.web.pages.timeline import BROKERS_SHOWN, absences, timeline
from exporters.web.runbook_commands import CommandBlock, Installations, commands_for
from streaming.contracts.events import EventKind, IncidentClass
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from exporters.read_model.incident_archive import Work
    from exporters.read_model.snapshot import ClusterSnapshot, EventRow

EVENTS_READ: Final = 5_000
MOMENTS_SHOWN: Final = 100
PARTITIONS_SHOWN: Final = 100
_STEPS_SHOWN: Final = 6
_EVIDENCE_SHOWN: Final = 3
_ABSENCES_SHOWN: Final = 3
_CHOICES: Final = 10
_DAY: Final = 86_400 * SECOND
_KEPT: Final = 32
_HELD: Final = 1_000
"""Fewer events than this are all that were read since a moment: so many are held in memory."""
_PEAKS: Final = {
    "offline": "offline_peak",
    "under min ISR": "under_min_isr_peak",
    "under-replicated": "under_replicated_peak",
}
_BACK: Final = frozenset({EventKind.REGISTERED, EventKind.UNFENCED})
_WORST: Final = (
    EventKind.UNCLEAN_ELECTION,
    EventKind.OFFLINE,
    EventKind.UNDER_MIN_ISR_BEGAN,
    EventKind.UNDER_REPLICATED_BEGAN,
)


class IncidentHistory(NamedTuple):
    """Events and work in the time of an incident.

    Attributes:
        events: of its cluster, oldest first.
        is_complete: none of that time is left out.
        work: planned work that was announced in its time.
        problem: why that could not be read; None if it could.
    """

    events: Sequence[EventRow] = ()
    is_complete: bool = True
    work: Sequence[Work] = ()
    problem: str | None = None


class SuspectRow(NamedTuple):
    """A suspected broker: how much of the incident it explains alone, its state at the moment shown, its evidence."""

    broker: str
    path: str
    percent: int
    state: str
    evidence: tuple[MomentRow, ...]


class PartitionLine(NamedTuple):
    """Steps of one partition, in one line; ``left_out``: how many more steps there were."""

    name: str
    topic_path: str
    steps: tuple[tuple[str, str], ...]
    left_out: int


class Handling(NamedTuple):
    """Help with an incident: the runbook's section, commands for a platform, the link that silences it.

    ``left``: the placeholders that commands still have.
    """

    runbook_path: str | None
    commands: tuple[CommandBlock, ...]
    left: tuple[str, ...]
    platform: str
    silence: str | None


class Neighbours(NamedTuple):
    """The incidents of the same cluster that began before and after."""

    before: PageLink | None
    after: PageLink | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPage(PageModel):
    """One incident."""

    template: ClassVar[str] = "incident.html"
    id: str
    level: Level
    kind: str
    state: str
    headline: str
    next_step: str | None
    consequence: str | None
    facts: tuple[tuple[str, str], ...]
    suspects: tuple[SuspectRow, ...]
    state_of_suspects: str
    is_blameless: bool
    drawing: Drawing
    moments: tuple[MomentRow, ...]
    moments_left_out: int
    is_complete: bool
    events_read: int
    causes: tuple[tuple[str, str], ...]
    partitions: tuple[PartitionLine, ...]
    partitions_left_out: int
    ends: tuple[PageLink, ...]
    handling: Handling
    neighbours: Neighbours
    markdown_path: str
    opened_at: int
    closed_at: int | None


def found_incident(inputs: Inputs, archive: IncidentArchive, any_id: str) -> Row:
    """Return the incident that an id finds.

    Raises:
        PageMoved: it is shown under another id: it was merged into that one, or has a shorter id.
        PageRefused: there is none, more than one, or none can be read.
    """
    try:
        row = archive.of_id(any_id)
        shown = shown_id(row)
        if shown != any_id and _finds(archive, shown, row):
            raise PageMoved(links.incident(shown, inputs.at))
    except IncidentUnknown as unknown:
        raise PageRefused(404, str(unknown), _choices(inputs, archive, any_id)) from unknown
    except IsrwatchError as error:
        raise PageRefused(503, f"the incidents cannot be read: {error}") from error
    if inputs.at is not None and row["opened_at"] > inputs.now:
        began, now = row["opened_at"], PageLink("now", links.incident(shown))
        choices = [PageLink(f"when {shown} began", links.incident(shown, began))]
        is_kept = inputs.is_kept(began)
        raise PageRefused(404, f"{shown} had not begun at this moment", [*(choices if is_kept else ()), now])
    return row


def _finds(archive: IncidentArchive, any_id: str, row: Row) -> bool:
    try:
        return bool(archive.of_id(any_id)["incident_id"] == row["incident_id"])
    except IncidentUnknown:
        return False


def _choices(inputs: Inputs, archive: IncidentArchive, any_id: str) -> list[PageLink]:
    """Return what an id may have meant: several incidents have it, or else the newest ones."""
    every = archive.all()
    meant = [row for row in every if any_id == row["short_id"] or row["incident_id"].startswith(any_id)] or every
    ids = [row["incident_id"] if row["short_id"] == any_id else shown_id(row) for row in meant[:_CHOICES]]
    pairs = zip(meant, ids, strict=False)
    return [PageLink(f"{each}: {sentence_of(row).headline}", links.incident(each, inputs.at)) for row, each in pairs]


class IncidentHistories:
    """Reads what happened in the time of incidents, and keeps it until an incident changes. Thread-safe."""

    def __init__(self, archive: IncidentArchive) -> None:
        """Keep nothing yet."""
        self._archive, self._lock = archive, threading.Lock()
        self._kept: dict[tuple[str, int, int | None], IncidentHistory] = {}

    def of(self, row: Row) -> IncidentHistory:
        """Return what happened in the time of an incident; what could not be read is read again."""
        key = row["incident_id"], row["updated_at"], row["closed_at"]
        with self._lock:
            history = self._kept.pop(key, None)
        history = history or read_history(self._archive, row)
        if history.problem is None:
            with self._lock:
                self._kept[key] = history
                if len(self._kept) > _KEPT:
                    del self._kept[next(iter(self._kept))]
        return history


def read_history(archive: IncidentArchive, row: Row) -> IncidentHistory:
    """Read what happened in the time of an incident."""
    try:
        changes, work = archive.changes(row, EVENTS_READ), archive.announced_work(row)
    except IsrwatchError as error:
        return IncidentHistory(problem=f"what happened cannot be read: {error}")
    return IncidentHistory([*map(as_event, changes.events)], changes.is_complete, work)


def incident_page(
    inputs: Inputs, row: Row, history: IncidentHistory, neighbours: tuple[Row | None, Row | None], parts: Sequence[str]
) -> IncidentPage:
    """Return the page of an incident.

    Args:
        inputs: of the page.
        row: of the incident.
        history: what happened in its time.
        neighbours: the incidents before and after it.
        parts: ids of what was merged into it.
    """
    shown, level, said = shown_id(row), level_of_incident(row), sentence_of(row)
    events, is_complete = _events_until_now(inputs, row, history)
    cluster, name = _cluster_of(inputs, row)
    moments = [*map(moment_row, by_moment(events))]
    lines, lines_left_out = _partition_lines(events, name, inputs.at)
    state = lasted(row, inputs.now, is_old=is_old(inputs, row))
    return IncidentPage(
        **frame_of(inputs),
        title=f"{level.sign} {shown} {state}: {said.headline} - isrwatch",
        heading=f"Incident {shown}",
        trail=trail_of(inputs, name),
        notices=(*notices_of(inputs), *_notices(inputs, cluster, history)),
        id=shown,
        level=level,
        kind=words_of(row["incident_class"]),
        state=state,
        headline=said._replace(consequence="").brief,
        next_step=row["next_step"],
        consequence=row["consequence"],
        facts=(*_down(events, row["opened_at"]), *_facts(inputs, row, parts, cluster)),
        suspects=tuple(_suspects(inputs, row, cluster, name, events)),
        state_of_suspects=_state_heading(inputs, row),
        is_blameless=is_blameless(row),
        drawing=timeline(row, events, history.work, _observed_until(inputs, row, cluster)),
        moments=tuple(moments[:MOMENTS_SHOWN]),
        moments_left_out=max(0, len(moments) - MOMENTS_SHOWN),
        is_complete=is_complete,
        events_read=len(events),
        causes=cause_rows([*(each["cause"] for each in row["causes"] or ()), *(event.cause for event in events)]),
        partitions=tuple(lines),
        partitions_left_out=lines_left_out,
        ends=tuple(_ends(inputs, row, name, events)),
        handling=handling_of(inputs.installations, row, name, parts),
        neighbours=Neighbours(*(_neighbour(inputs, each) for each in neighbours)),
        markdown_path=links.incident_markdown(shown),
        opened_at=row["opened_at"],
        closed_at=None if is_open(row, inputs.now) else row["closed_at"],
    )


def _events_until_now(inputs: Inputs, row: Row, history: IncidentHistory) -> tuple[list[EventRow], bool]:
    """Return the events by the moment that is shown, and whether these are all.

    Of an open incident the newest ones are in memory: they are later than its last change, and of its time as well.
    """
    events = [event for event in history.events if event.occurred_not_after <= inputs.now]
    if inputs.past is not None or row["closed_at"] is not None:
        return events, history.is_complete
    newest = [each for each in inputs.snapshot.recent_events if each.occurred_not_after > row["updated_at"]]
    later = [each for each in newest if each.cluster_id == row["cluster_id"]]
    is_complete = history.is_complete and len(newest) < _HELD
    return [*events, *sorted(later, key=lambda event: event.occurred_not_after)], is_complete


def _observed_until(inputs: Inputs, row: Row, cluster: ClusterSnapshot | None) -> int:
    """Return up to when an incident can be drawn: not beyond what is known of its cluster."""
    until = None if cluster is None or not is_old(inputs, row) else cluster.observed_until
    return inputs.now if until is None else min(until, inputs.now)


def _state_heading(inputs: Inputs, row: Row) -> str:
    if inputs.past is not None:
        return "state then"
    return "state when last observed" if is_old(inputs, row) else "state now"


def _cluster_of(inputs: Inputs, row: Row) -> tuple[ClusterSnapshot | None, str]:
    """Return the cluster of an incident, None if it is not there, and the name that it is shown under."""
    cluster = inputs.snapshot.clusters.get(row["cluster_id"])
    name = row["cluster"] if cluster is None else cluster.name
    shown = (shown for shown, each in inputs.clusters.items() if each.cluster.cluster_id == row["cluster_id"])
    return cluster, next(shown, name)


def _notices(inputs: Inputs, cluster: ClusterSnapshot | None, history: IncidentHistory) -> Iterator[Notice]:
    if history.problem is not None:
        yield Notice(Level.UNKNOWN, history.problem)
    if inputs.past is not None:
        yield Notice(Level.INFO, "Its sentences and suspects are as known today; what happened is shown until then.")
    elif cluster is not None and inputs.is_stale(cluster):
        age = cluster.age_seconds(inputs.now)
        yield Notice(Level.UNKNOWN, f"Stale: its cluster was last observed {lasting(age)} ago; it may be over.")


def _facts(
    inputs: Inputs, row: Row, parts: Sequence[str], cluster: ClusterSnapshot | None
) -> Iterator[tuple[str, str]]:
    if parts:
        yield "includes", ", ".join(parts)
    if row["topics"]:
        more = (row["topic_count"] or 0) - len(row["topics"])
        yield "topics", ", ".join(row["topics"]) + (f" and {more:,} more" if more > 0 else "")
    counts = (f"{'?' if row[peak] is None else format(row[peak], ',')} {name}" for name, peak in _PEAKS.items())
    yield "in numbers", sentence_of(row).numbers or ", ".join(counts) + " at most"
    if row["causes"]:
        yield "causes", ", ".join(f"{words_of(each['cause'])} {each['changes']:,}" for each in row["causes"])
    if inputs.past is None and is_recovered(row):
        why = "if no more brokers restart" if row["is_rolling"] else "if nothing more happens"
        yield "closes", f"{why}, at {clock(row['closes_at'])[:8]} UTC" if row["closes_at"] else why
    harmed = [] if cluster is None or inputs.past else groups_beyond(row, _offsets(cluster))
    if harmed:
        yield "groups", "; ".join(harmed)
    yield "long id", row["incident_id"]


def _down(events: Iterable[EventRow], opened_at: int) -> Iterator[tuple[str, str]]:
    """Yield when brokers were down: one may have fallen again before the incident was over."""
    lines = []
    for number, times in sorted(absences(events).items()):
        spans = [
            " ".join((
                "" if each.since is None else f"from {_time_of_step(each.since, opened_at)}",
                "" if each.until is None else f"to {_time_of_step(each.until, opened_at)}",
            )).strip()
            for each in times[:_ABSENCES_SHOWN]
        ]  # fmt: skip
        more = len(times) - len(spans)
        lines.append(f"broker {number} {' and '.join(spans)}" + (f" and {more:,} more times" if more else ""))
    if lines:
        rest = len(lines) - BROKERS_SHOWN
        yield "down (UTC)", "; ".join(lines[:BROKERS_SHOWN]) + (f"; and {rest:,} more brokers" if rest > 0 else "")


def _offsets(cluster: ClusterSnapshot) -> list[Row]:
    return [each._asdict() for each in cluster.samples.group_offsets or ()]


def _suspects(
    inputs: Inputs, row: Row, cluster: ClusterSnapshot | None, name: str, events: Sequence[EventRow]
) -> Iterator[SuspectRow]:
    ids = set(row["event_ids"] or ())
    evidence = [event for event in events if event.event_id in ids]
    for suspect in blamed(row):
        number = int(suspect["broker"])
        own = by_moment(_about(number, evidence) or _about(number, events))
        yield SuspectRow(
            broker=str(number),
            path=links.broker(name, number, inputs.at),
            percent=round(100 * suspect["score"]),
            state="unknown" if cluster is None else state_name(cluster, number),
            evidence=tuple(moment_row(each) for each, _ in zip(own, range(_EVIDENCE_SHOWN), strict=False)),
        )


def _about(number: int, events: Sequence[EventRow]) -> list[EventRow]:
    """Return what happened to a broker, or to what it led; of a partition's event its broker may be who leads now."""
    return [
        event
        for event in events
        if number in event.left_isr
        or (event.partition is None and number == event.event_broker and event.event not in _BACK)
        or (number == event.leader_before != event.leader_after and event.leader_after is not None)
    ]


def _partition_lines(events: Iterable[EventRow], cluster_name: str, at: int | None) -> tuple[list[PartitionLine], int]:
    """Return a line for each partition, the worst off first, and how many more partitions there are."""
    by_partition: defaultdict[tuple[str, int], list[EventRow]] = defaultdict(list)
    for event in events:
        if event.topic is not None and event.partition is not None:
            by_partition[event.topic, event.partition].append(event)
    worst = sorted(by_partition.items(), key=lambda each: (_rank(each[1]), each[0]))
    lines = []
    for (topic, partition), own in worst[:PARTITIONS_SHOWN]:
        steps = [(_time_of_step(each.at, own[0].occurred_not_after), each.what) for each in by_moment(own)]
        left_out = max(0, len(steps) - _STEPS_SHOWN)
        path = links.topic(cluster_name, topic, at)
        lines.append(PartitionLine(f"{topic}-{partition}", path, tuple(steps[:_STEPS_SHOWN]), left_out))
    return lines, max(0, len(worst) - PARTITIONS_SHOWN)


def _time_of_step(at: int, first: int) -> str:
    """Return the time of day, with the day where it is not that of the first step."""
    pattern = "%H:%M:%S" if at // _DAY == first // _DAY else "%m-%d %H:%M:%S"
    return datetime.fromtimestamp(at // SECOND, UTC).strftime(pattern)


def _rank(events: Iterable[EventRow]) -> int:
    kinds = {event.event for event in events}
    return next((rank for rank, kind in enumerate(_WORST) if kind in kinds), len(_WORST))


def handling_of(installations: Installations, row: Row, name: str, parts: Sequence[str]) -> Handling:
    """Return what to do about an incident: commands, runbook and the link that silences it."""
    # Starting what was lost again may destroy what records are recovered from, so that section comes before its class.
    kind = IncidentClass.UNCLEAN_ELECTION if row["unclean_elections"] else row["incident_class"]
    labels, platform = _labels(row, name), installations.platform(name)
    commands = commands_for(kind, platform, {**installations.labels(name), **labels})
    return Handling(
        runbook_path=runbook_path(kind, labels),
        commands=tuple(commands),
        left=tuple(dict.fromkeys(each for block in commands for each in block.left)),
        platform=platform,
        silence=_silence(installations, row, name, parts),
    )


def _labels(row: Row, cluster_name: str) -> dict[str, str]:
    """Return what the runbook is filled in with: the likeliest suspect, or else the broker that was lost."""
    brokers = [each["broker"] for each in blamed(row)] or list(row["brokers"] or ())
    topics = row["topics"] or ()
    return {
        "cluster": cluster_name,
        **({"broker": str(brokers[0])} if brokers else {}),
        **({"topic": topics[0]} if topics else {}),
    }


def _silence(installations: Installations, row: Row, name: str, parts: Sequence[str]) -> str | None:
    if row["closed_at"] is not None or row["short_id"] is None:
        return None
    return silence_link(installations.alertmanager_url, name, [row["short_id"], *parts], f"{row['short_id']}: ")


def _ends(inputs: Inputs, row: Row, name: str, events: Sequence[EventRow]) -> Iterator[PageLink]:
    """Yield links to what was when the incident began, and when it was over, as far as that is kept."""
    began = max(row["opened_at"], events[0].occurred_not_after if events else 0)
    over = None if is_open(row, inputs.now) else row["closed_at"]
    for words, path, at in (
        ("the cluster when it began", partial(links.cluster, name), began),
        ("the cluster when it was over", partial(links.cluster, name), over),
        ("this page when it began", partial(links.incident, shown_id(row)), began),
    ):
        if at is not None and at != inputs.at and inputs.is_kept(at):
            yield PageLink(words, path(at))


def _neighbour(inputs: Inputs, row: Row | None) -> PageLink | None:
    if row is None or (inputs.at is not None and row["opened_at"] > inputs.now):
        return None
    return PageLink(f"{shown_id(row)}: {sentence_of(row).headline}", links.incident(shown_id(row), inputs.at))
