"""The page of a cluster: conditions, brokers and whether they may stop, topics at risk, incidents, announced work."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.answers.brokers import by_reason, state_name, why_no_advice
from exporters.read_model.cluster_health import disk_incidents
from exporters.read_model.health_reasons import was_ahead
from exporters.read_model.snapshot import SECOND
from exporters.web.pages.drawing import Axis, Band, Drawing, Lane
from exporters.web.pages.fleet import (
    OF_GROUPS,
    OF_VOLUMES,
    SOURCES,
    Counts,
    counts_of,
    incidents_to_handle,
    level_of_reason,
    raised_in_words,
    reason_in_words,
    risks_of,
    sentence_of,
)
from exporters.web.pages.incidents import ListedIncident, incident_row, incidents_of
from exporters.web.pages.page import (
    OF_SEVERITY,
    Inputs,
    Level,
    Notice,
    PageLink,
    PageModel,
    PageMoved,
    PageRefused,
    Row,
    count,
    frame_of,
    lasting,
    level_of,
    notices_of,
    visible_name,
    words_of,
)
from exporters.web.runbook import known_values, runbook
from streaming.contracts import health
from streaming.contracts.alerts import ALERTS
from streaming.contracts.conditions import OF_BROKERS, Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from exporters.read_model.cluster_health import ClusterHealth
    from exporters.read_model.conditions import Raised
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import BrokerState

MONTH: Final = 30 * 86_400 * SECOND
TOPICS_SHOWN: Final = 50
INCIDENTS_SHOWN: Final = 20
_SECTIONS: Final[dict[str, str]] = {
    condition: alert.section or name for name, alert in ALERTS.items() for condition in alert.conditions
}
"""Sections of the runbook by the conditions that they are about."""
_WHEN_BLIND: Final = "find out why nothing is observed any more: isrwatch doctor says what does not work"
_RISKS: Final = (health.OFFLINE, health.UNDER_MIN_ISR, health.AT_MIN_ISR, health.UNDER_REPLICATED)


class ConditionRow(NamedTuple):
    """Something that is wrong: in words, since when, where it leads, and the incidents that explain it.

    ``runbook``: the path of what to do; ``first_since``: when it first began, if it was over in between; ``ended_at``:
    when it was over, if it is.
    """

    level: Level
    text: str
    since: int | None
    path: str | None
    incidents: tuple[tuple[str, str], ...]
    runbook: str | None = None
    first_since: int | None = None
    ended_at: int | None = None


class BrokerRow(NamedTuple):
    """One broker; None is unknown."""

    broker: str
    path: str
    state: str
    rack: str | None
    leads: int
    hosts: int
    in_sync: int
    is_safe_to_stop: bool | None


class TopicRow(NamedTuple):
    """Partitions of a topic that are at risk, by what is wrong."""

    topic: str
    path: str
    offline: int
    under_min_isr: int
    at_min_isr: int
    under_replicated: int


class WorkRow(NamedTuple):
    """Announced work on a broker; ``overran_at``: it ended then, and the broker was not back."""

    broker: str
    path: str
    since: int | None
    until: int | None
    why: str | None
    overran_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPage(PageModel):
    """One cluster; ``is_old``: what is shown is its last observation; ``do_first``: of its worst incident."""

    template: ClassVar[str] = "cluster.html"
    level: Level
    sentence: str
    do_first: str | None
    counts: Counts
    is_old: bool
    facts: tuple[tuple[str, str], ...]
    conditions: tuple[ConditionRow, ...]
    brokers: tuple[BrokerRow, ...]
    reasons: tuple[tuple[str, str], ...]
    has_advice: bool
    topics: tuple[TopicRow, ...]
    topics_left_out: int
    incidents: tuple[ListedIncident, ...]
    incidents_total: int
    incidents_path: str
    bands: Drawing | None
    work: tuple[WorkRow, ...]
    groups_path: str
    groups: int | None


def cluster_page(inputs: Inputs, name: str) -> ClusterPage:
    """Return the page of a cluster."""
    cluster = cluster_named(inputs, name, links.cluster)
    (judged,) = inputs.health({name: cluster})
    conditions = inputs.raised.get(name, ())
    level = level_of(judged, conditions)
    sentence, to_handle = sentence_of(inputs, cluster, judged), incidents_to_handle(cluster, judged)
    is_old = inputs.is_stale(cluster)
    month = [row for row in incidents_of(inputs, cluster.cluster.cluster_id) if _is_of_month(row, inputs.now)]
    topics = topics_at_risk(cluster, name, inputs.at)
    advice = {number: advice_of(inputs, cluster, number) for number in cluster.known_brokers()}
    return ClusterPage(
        **frame_of(inputs),
        title=f"{level.sign} {name}: {sentence.partition('; ')[0]} - isrwatch",
        heading=visible_name(name),
        notices=notices_of(inputs),
        level=level,
        sentence=sentence,
        do_first=_do_first(inputs, cluster, to_handle),
        counts=counts_of(cluster),
        is_old=is_old,
        facts=tuple(_facts(inputs, cluster)),
        conditions=tuple(condition_rows(inputs, name, judged, conditions)),
        brokers=tuple(
            _broker_row(inputs, cluster, name, number, is_safe=is_safe) for number, (is_safe, _) in advice.items()
        ),
        reasons=tuple(by_reason((number, reason) for number, (_, reason) in advice.items())),
        has_advice=inputs.past is None,
        topics=tuple(topics[:TOPICS_SHOWN]),
        topics_left_out=max(0, len(topics) - TOPICS_SHOWN),
        incidents=tuple(incident_row(inputs, row) for row in month[:INCIDENTS_SHOWN]),
        incidents_total=len(month),
        incidents_path=links.incidents(inputs.at, cluster_name=name),
        bands=_bands(inputs, month),
        work=tuple(work_rows(inputs, name, cluster.brokers.values())),
        groups_path=links.groups(name, inputs.at),
        groups=None if inputs.past or cluster.samples.groups is None else len(cluster.samples.groups),
    )


def _do_first(inputs: Inputs, cluster: ClusterSnapshot, incidents: Sequence[Row]) -> str | None:
    """Return what to do first; of the past nothing, and nothing where only a clock makes data look old."""
    if inputs.past is not None:
        return None
    if inputs.is_stale(cluster):
        return _WHEN_BLIND if cluster.ahead_until(inputs.now) is None else None
    return next((row["next_step"] for row in incidents), None)


def cluster_named(inputs: Inputs, name: str, path: Callable[..., str], *more: object) -> ClusterSnapshot:
    """Return the cluster that is shown under a name.

    Args:
        inputs: of the page.
        name: of the cluster, its id, or one that it had when it had incidents.
        path: makes the path of the page, from the name, ``more`` and the moment.
        more: what else the path is made of.

    Raises:
        PageMoved: it is shown under another name.
        PageRefused: there is none.
    """
    if name in inputs.clusters:
        return inputs.clusters[name]
    for shown, each in inputs.clusters.items():
        formerly = () if each.incidents is None else each.incidents.names - each.incidents.others_names
        if name == each.cluster.cluster_id or name in formerly:
            raise PageMoved(path(shown, *more, at=inputs.at))
    choices = [PageLink(visible_name(shown), links.cluster(shown, inputs.at)) for shown in inputs.clusters]
    when = "" if inputs.past is None else " at this moment"
    raise PageRefused(404, f"there is no cluster {name!r}{when}", choices)


def trail_of(inputs: Inputs, cluster_name: str) -> tuple[PageLink, ...]:
    """Return the pages above one of a part of a cluster."""
    return (PageLink(visible_name(cluster_name), links.cluster(cluster_name, inputs.at)),)


def _is_of_month(row: Row, now: int) -> bool:
    return row["closed_at"] is None or row["closed_at"] >= now - MONTH


def _facts(inputs: Inputs, cluster: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    age, controller = cluster.age_seconds(inputs.now), cluster.controller
    yield "data age", "unknown" if age is None else f"{lasting(age)}{' (stale)' if inputs.is_stale(cluster) else ''}"
    yield "source", SOURCES[cluster.cluster.primary_source]
    yield "controller", "unknown" if controller is None else str(controller)
    registered = cluster.registered_brokers()
    yield "brokers", "unknown" if registered is None else f"{registered:,} registered"
    yield "partitions", f"{cluster.counts.states.get(health.PARTITIONS, 0):,} of {count(len(cluster.topics), 'topic')}"
    yield "cluster id", cluster.cluster.cluster_id


def condition_rows(
    inputs: Inputs, name: str, judged: ClusterHealth, conditions: Sequence[Raised]
) -> Iterator[ConditionRow]:
    """Yield what is wrong, worst first: the reasons of its health, and what else is raised."""
    rows = [
        ConditionRow(
            level=level_of_reason(each),
            text=reason_in_words(each),
            since=each.since,
            path=None,
            incidents=inputs.incident_links(each.incidents),
            runbook=runbook_path(_SECTIONS.get(each.condition, ""), {"cluster": name}),
        )
        for each in judged.reasons
    ]
    said = {each.condition for each in judged.reasons}
    rows += [raised_row(inputs, name, each) for each in conditions if each.condition not in said]
    yield from sorted(rows, key=lambda row: row.level.rank)


def raised_row(inputs: Inputs, name: str, each: Raised) -> ConditionRow:
    """Return a condition that is raised as a row."""
    path, number, labels = None, each.subject.partition(":")[0], {"cluster": name}
    if each.condition in OF_BROKERS | OF_VOLUMES and number.isdecimal():
        path, labels["broker"] = links.broker(name, int(number), inputs.at), number
    elif each.condition in OF_GROUPS:
        path, labels["group"] = links.group(name, each.subject, inputs.at), each.subject
    ids = [each.short_id] if each.short_id else []
    if each.condition is Condition.LOG_DIRECTORY_OFFLINE and path is not None:
        ids = disk_incidents(inputs.clusters[name], int(number))
    return ConditionRow(
        level=Level.INFO if each.is_over else OF_SEVERITY.get(each.severity, Level.WARNING),
        text=raised_in_words(each),
        since=each.again_since or each.since,
        path=path,
        incidents=inputs.incident_links(ids),
        runbook=runbook_path(_SECTIONS.get(each.condition, ""), labels),
        first_since=None if each.again_since is None else each.since,
        ended_at=each.ended_at if each.is_over else None,
    )


def runbook_path(kind: str, labels: Mapping[str, str]) -> str | None:
    """Return the path of the runbook's section about an alert or a class of incidents; None if it has none."""
    book = runbook()
    section = book.shared.get(kind, kind)
    return links.runbook(section, known_values(labels)) if section in book.sections else None


def _broker_row(inputs: Inputs, cluster: ClusterSnapshot, name: str, number: int, *, is_safe: bool | None) -> BrokerRow:
    broker, counts = cluster.brokers.get(number), cluster.counts
    return BrokerRow(
        broker=str(number),
        path=links.broker(name, number, inputs.at),
        state=state_name(cluster, number),
        rack=None if broker is None else broker.rack or "",
        leads=counts.led.get(number, 0),
        hosts=counts.hosted.get(number, 0),
        in_sync=counts.in_sync.get(number, 0),
        is_safe_to_stop=is_safe,
    )


def advice_of(inputs: Inputs, cluster: ClusterSnapshot, number: int) -> tuple[bool | None, str | None]:
    """Return whether a broker may stop now, and why not; unknown in the past and while the state is stale."""
    why = why_no_advice(cluster, is_stale=inputs.is_stale(cluster), is_past=inputs.past is not None)
    if why is not None or cluster.advice is None:
        return None, why
    advice = cluster.advice.brokers.get(number)
    return (None, "unknown") if advice is None else (advice.is_safe_to_stop, advice.restart_reason)


def topics_at_risk(cluster: ClusterSnapshot, name: str, at: int | None) -> list[TopicRow]:
    """Return the topics with partitions that are at risk, the worst first."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_RISKS))
    for partition in cluster.unsettled.values():
        for place, holds in enumerate(risks_of(partition)):
            counts[partition.topic][place] += holds
    worst = sorted((each for each in counts.items() if any(each[1])), key=lambda each: ([-n for n in each[1]], each[0]))
    return [TopicRow(topic, links.topic(name, topic, at), *numbers) for topic, numbers in worst]


def work_rows(inputs: Inputs, name: str, brokers: Iterable[BrokerState]) -> Iterator[WorkRow]:
    """Yield the announced work on brokers, and where it overran."""
    for broker in sorted(brokers, key=lambda each: each.broker):
        if broker.maintenance_until is not None or broker.maintenance_overran_at is not None:
            yield WorkRow(
                str(broker.broker),
                links.broker(name, broker.broker, inputs.at),
                broker.maintenance_since,
                broker.maintenance_until,
                broker.maintenance_why,
                broker.maintenance_overran_at,
            )


def _bands(inputs: Inputs, month: Sequence[Row]) -> Drawing | None:
    """Draw the incidents of 30 days, a lane for each class."""
    if not month:
        return None
    axis = Axis(inputs.now - MONTH, inputs.now)
    by_class: defaultdict[str, list[Row]] = defaultdict(list)
    for row in month:
        by_class[row["incident_class"]].append(row)
    lanes = (
        Lane(f"{words_of(kind)}: {len(rows):,}", tuple(_band(inputs, axis, rows))) for kind, rows in by_class.items()
    )
    return axis.drawing(lanes)


def _band(inputs: Inputs, axis: Axis, rows: Iterable[Row]) -> Iterator[Band]:
    for row in rows:
        shown = incident_row(inputs, row)
        until = None if row["closed_at"] is None else min(row["closed_at"], inputs.now)
        yield axis.band(row["opened_at"], until, shown.level, shown.path)


def notice_of_age(inputs: Inputs, cluster: ClusterSnapshot) -> tuple[Notice, ...]:
    """Return a notice that the data of a cluster is too old, or that there is none."""
    if not inputs.is_stale(cluster):
        return ()
    age = cluster.age_seconds(inputs.now)
    if age is None:
        return (Notice(Level.UNKNOWN, "This cluster has not been observed yet: nothing is known of it."),)
    why = f"what is shown was last observed {lasting(age)} ago, and may be over"
    if (to_come := cluster.ahead_until(inputs.now)) is not None:
        why = was_ahead(to_come)
    return (Notice(Level.UNKNOWN, f"Stale: {why}."),)
