"""The page of a broker: its state, whether it may stop and why not, its partitions at risk, and what happened to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.answers.brokers import state_name
from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import causes_explained
from exporters.read_model.cluster_health import is_planned
from exporters.read_model.conditions import Raised, announced_brokers, open_spells
from exporters.read_model.events import brokers_of
from exporters.web.pages.cluster import (
    ConditionRow,
    WorkRow,
    advice_of,
    cluster_named,
    notice_of_age,
    raised_row,
    trail_of,
    work_rows,
)
from exporters.web.pages.fleet import OF_VOLUMES
from exporters.web.pages.incidents import ListedIncident, incident_row, incidents_of
from exporters.web.pages.page import (
    Inputs,
    Level,
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
from exporters.web.pages.topic import PartitionRow, partition_row, partition_rows, risks_in_words
from streaming.contracts.conditions import OF_BROKERS, RULES
from streaming.contracts.events import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.answers.event_groups import EventGroup
    from exporters.read_model.cluster_samples import LogDirectoryRow
    from exporters.read_model.snapshot import ClusterSnapshot, EventRow
    from streaming.contracts.state import PartitionState

PARTITIONS_SHOWN: Final = 100
INCIDENTS_SHOWN: Final = 10
MOMENTS_SHOWN: Final = 30


class MomentRow(NamedTuple):
    """Something that happened, in one line."""

    at: int
    subject: str
    what: str
    cause: str


class DirectoryRow(NamedTuple):
    """One log directory, as of its newest sample; None is unknown."""

    log_dir: str
    is_online: bool
    used_percent: float | None
    full_in: str | None
    sampled_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPage(PageModel):
    """One broker."""

    template: ClassVar[str] = "broker.html"
    level: Level
    state: str
    sentence: str
    is_safe_to_stop: bool | None
    reason: str | None
    facts: tuple[tuple[str, str | None], ...]
    conditions: tuple[ConditionRow, ...]
    work: tuple[WorkRow, ...]
    partitions: tuple[PartitionRow, ...]
    partitions_left_out: int
    directories: tuple[DirectoryRow, ...] | None
    incidents: tuple[ListedIncident, ...]
    moments: tuple[MomentRow, ...]
    causes: tuple[tuple[str, str], ...]


def broker_page(inputs: Inputs, cluster_name: str, number: int) -> BrokerPage:
    """Return the page of a broker."""
    cluster = cluster_named(inputs, cluster_name, links.broker, number)
    numbers = cluster.known_brokers()
    if number not in numbers:
        choices = [PageLink(f"broker {each}", links.broker(cluster_name, each, inputs.at)) for each in numbers]
        raise PageRefused(404, f"cluster {cluster_name} has no broker {number}, as far as is known", choices)
    is_safe, reason = advice_of(inputs, cluster, number)
    state = state_name(cluster, number)
    conditions = tuple(_conditions(inputs, cluster_name, cluster, number))
    held = [each for each in cluster.unsettled.values() if number in each.replicas]
    partitions = partition_rows(held)
    level = _level(
        inputs, cluster, number, state, [*(each.level for each in conditions), *_levels(inputs, cluster, held)]
    )
    is_old = inputs.is_stale(cluster)
    shown = f"{state} when it was last observed" if is_old else state
    troubles = (each.text.removesuffix(f": broker {number}") for each in conditions if each.ended_at is None)
    at_risk = risks_in_words(held)
    recent = [event for event in _recent(inputs, cluster) if number in brokers_of(event._asdict())]
    sentence = "; ".join((shown, *troubles, *([f"of its partitions {at_risk}"] if at_risk else ())))
    about = (row for row in incidents_of(inputs, cluster.cluster.cluster_id) if _is_about(row, number))
    return BrokerPage(
        **frame_of(inputs),
        title=f"{level.sign} broker {number} of {cluster_name}: {sentence} - isrwatch",
        heading=f"Broker {number}",
        trail=trail_of(inputs, cluster_name),
        notices=(*notices_of(inputs), *notice_of_age(inputs, cluster)),
        level=level,
        state=state,
        sentence=sentence,
        is_safe_to_stop=is_safe,
        reason=reason,
        facts=tuple(_facts(cluster, number)),
        conditions=conditions,
        work=tuple(work_rows(inputs, cluster_name, filter(None, [cluster.brokers.get(number)]))),
        partitions=tuple(partitions[:PARTITIONS_SHOWN]),
        partitions_left_out=max(0, len(partitions) - PARTITIONS_SHOWN),
        directories=_directories(inputs, cluster, number),
        incidents=tuple(incident_row(inputs, row) for row, _ in zip(about, range(INCIDENTS_SHOWN), strict=False)),
        moments=moment_rows(recent),
        causes=cause_rows([*(each.cause for each in recent), *(each.last_cause for each in held)]),
    )


def _facts(cluster: ClusterSnapshot, number: int) -> Iterator[tuple[str, str | None]]:
    broker, counts = cluster.brokers.get(number), cluster.counts
    yield "leads", f"{counts.led.get(number, 0):,} partitions"
    yield "in sync", f"{counts.in_sync.get(number, 0):,} of {counts.hosted.get(number, 0):,} replicas"
    if broker is not None:
        yield "rack", broker.rack or "none"
        yield "address", None if broker.host is None else f"{broker.host}:{broker.port}"
        yield "epoch", None if broker.broker_epoch is None else str(broker.broker_epoch)
    departures = cluster.isr_removals_of(number)
    if departures:
        yield (
            "left ISRs",
            ", ".join(f"{count(times, 'time')} ({words_of(cause)})" for cause, times in sorted(departures.items())),
        )


def _conditions(inputs: Inputs, name: str, cluster: ClusterSnapshot, number: int) -> Iterator[ConditionRow]:
    """Yield what is raised of a broker, and what lasts and is not raised yet."""
    raised = [each for each in inputs.raised.get(name, ()) if each.subject.partition(":")[0] == str(number)]
    raised = [each for each in raised if each.condition in OF_BROKERS | OF_VOLUMES]
    yield from (raised_row(inputs, name, each) for each in raised)
    conditions = {each.condition for each in raised}
    for spell in open_spells(cluster, *(OF_BROKERS - conditions)):
        if spell.subject == str(number):
            severity = RULES[spell.condition].severity if spell.condition in RULES else Severity.INFO
            again_since = spell.began_at if spell.began_at > spell.since else None
            since = spell.short_id or "", spell.since, again_since
            yield raised_row(inputs, name, Raised(name, spell.condition, spell.subject, severity, *since))


def _level(inputs: Inputs, cluster: ClusterSnapshot, number: int, state: str, others: Iterable[Level]) -> Level:
    """Return how bad it is: the worst of itself, its conditions and its partitions."""
    if inputs.is_stale(cluster) or state == "unknown":
        return Level.UNKNOWN
    if state == "active":
        own = Level.HEALTHY
    elif number in announced_brokers(cluster, inputs.now):
        own = Level.PLANNED
    else:
        own = Level.WARNING if cluster.counts.hosted.get(number) or state == "fenced" else Level.INFO  # it is gone
    worse = (level for level in others if level is not Level.INFO)
    return min((own, *worse), key=lambda level: level.rank)


def _levels(inputs: Inputs, cluster: ClusterSnapshot, held: Iterable[PartitionState]) -> Iterator[Level]:
    """Yield how bad its partitions are; that a replica is missing by announced work is no warning."""
    announced = announced_brokers(cluster, inputs.now)
    for each in held:
        level = partition_row(each).level
        yield Level.PLANNED if level is Level.WARNING and is_planned(each, announced) else level


def _directories(inputs: Inputs, cluster: ClusterSnapshot, number: int) -> tuple[DirectoryRow, ...] | None:
    """Return its log directories; None: they are not kept, or could not be read."""
    rows = cluster.samples.log_directories
    if inputs.past is not None or rows is None:
        return None
    own = sorted((each for each in rows if each.broker == number), key=lambda each: each.log_dir)
    return tuple(
        DirectoryRow(each.log_dir, each.is_online, _used(each), _full_in(each), each.collected_at) for each in own
    )


def _used(row: LogDirectoryRow) -> float | None:
    if not row.total_bytes or row.usable_bytes is None:
        return None
    return 100 * (1 - row.usable_bytes / row.total_bytes)


def _full_in(row: LogDirectoryRow) -> str | None:
    if row.usable_bytes is None or row.bytes_per_second is None:
        return None
    return lasting(row.seconds_until_full) or "not soon"


def _is_about(row: Row, number: int) -> bool:
    suspects = {each["broker"] for each in row["suspects"] or ()}
    return number in suspects or number in (row["brokers"] or ())


def _recent(inputs: Inputs, cluster: ClusterSnapshot) -> list[EventRow]:
    """Return the newest events of a cluster that are held in memory, oldest first; none of them is later than shown."""
    cluster_id = cluster.cluster.cluster_id
    return [each for each in inputs.snapshot.recent_events if each.cluster_id == cluster_id]


def moment_row(group: EventGroup) -> MomentRow:
    """Return what happened at once as a line, the names of kinds and causes as words."""
    first = group.events[0]
    cause = group.cause.replace(first.cause, words_of(first.cause)) if first.cause else group.cause
    return MomentRow(group.at, group.subject, group.what.replace(first.event, words_of(first.event)), cause)


def cause_rows(causes: Iterable[str | None]) -> tuple[tuple[str, str], ...]:
    """Return what causes mean, under the words that they are shown with."""
    return tuple((words_of(cause), meaning) for cause, meaning in causes_explained(causes).items())


def moment_rows(events: Iterable[EventRow]) -> tuple[MomentRow, ...]:
    """Return events as lines, what happened at once as one of them, newest first."""
    ordered = sorted(events, key=lambda event: event.occurred_not_after)
    rows = [moment_row(each) for each in by_moment(ordered)]
    return tuple(reversed(rows[-MOMENTS_SHOWN:]))
