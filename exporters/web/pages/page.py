"""Inputs of every page, the parts that all have, and the rendering of their templates.

The model of a page is a pure function of :class:`Inputs` to a frozen :class:`PageModel`; a template renders that and
decides nothing. It escapes every value; a text is printable and of bearable length, a link is relative to the page.
Times are UTC microseconds in models, and are written by filters of the templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from markupsafe import Markup, escape

from exporters.answers import links
from exporters.read_model.cluster_health import ClusterHealth, HealthBasis, HealthStatus, health_of
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.conditions import (
    DEFAULT_SETTINGS,
    ConditionInputs,
    ConditionSettings,
    Raised,
    job_reported_at,
    raised,
)
from exporters.read_model.health_reasons import HealthSeverity
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import SECOND
from exporters.web.runbook_commands import Installations
from streaming.contracts.events import Severity
from streaming.errors import IsrwatchError
from streaming.escapes import printable, with_short_words
from streaming.web.markup import STYLE

if TYPE_CHECKING:
    from jinja2.runtime import Context

    from exporters.read_model.incident_archive import IncidentArchive
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot

Row = dict[str, Any]
_FOLDER: Final = Path(__file__).with_name("templates")
_DAY: Final = 86_400
_ABBREVIATIONS: Final = re.compile(r"\b(?:isr|elr)\b")


class Level(StrEnum):
    """Severity of anything on a page, worst first; what is unknown is not known to be broken, and never well."""

    CRITICAL = "critical"
    WARNING = "warning"
    UNKNOWN = "unknown"
    PLANNED = "planned"
    INFO = "info"
    HEALTHY = "healthy"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return _ORDER.index(self)

    @property
    def sign(self) -> str:
        """Sign that is not its colour."""
        return _SIGNS[self]


_ORDER: Final = [*Level]
_SIGNS: Final = {
    Level.CRITICAL: "\u2716",
    Level.WARNING: "\u25b2",
    Level.UNKNOWN: "?",
    Level.PLANNED: "\u25c6",
    Level.INFO: "\u25cb",
    Level.HEALTHY: "\u2714",
}
OF_SEVERITY: Final[Mapping[str, Level]] = {
    Severity.CRITICAL: Level.CRITICAL,
    Severity.WARNING: Level.WARNING,
    Severity.INFO: Level.INFO,
}
OF_HEALTH: Final[Mapping[str, Level]] = {
    HealthSeverity.CRITICAL: Level.CRITICAL,
    HealthSeverity.WARNING: Level.WARNING,
    HealthSeverity.PLANNED: Level.PLANNED,
    HealthSeverity.UNKNOWN: Level.UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Settings of pages.

    Attributes:
        stale_after: older data says nothing about now; seconds.
        conditions: what is raised, and names of severities.
        metrics_path: of the metrics for Prometheus.
    """

    stale_after: float
    conditions: ConditionSettings = DEFAULT_SETTINGS
    metrics_path: str = "/metrics"


class PastMoment(NamedTuple):
    """Moment of a page of the past, and the changes next to it; None: there is none, as far as is kept."""

    at: int
    previous: int | None = None
    next: int | None = None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything a page is made of, as one request sees it.

    Attributes:
        snapshot: content of the tables, at the moment that is shown.
        now: the moment that is shown: ages are measured from it.
        settings: of pages.
        path: of the page, without its query, as it was sent.
        archive: every incident; None: there is none to read.
        past: of a page of the past; None: the present.
        unreadable: tables that cannot be read, each with the reason.
        problems: what is wrong with the exporter itself, and what it could not read.
        query: parameters of the page besides the moment.
        requested_at: when the page was asked for.
        installations: what the configuration says of clusters.
        is_kept: returns whether history holds a moment: only then a page links to it.
        give_way: called between two clusters, or some incidents: lets a scrape go first.
    """

    snapshot: ReplicationSnapshot
    now: int
    settings: PageSettings
    path: str = "/"
    archive: IncidentArchive | None = None
    past: PastMoment | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requested_at: int = 0
    installations: Installations = field(default_factory=Installations)
    is_kept: Callable[[int], bool] = lambda _: False
    give_way: Callable[[], None] = lambda: None

    @property
    def at(self) -> int | None:
        """The moment that links carry on; None of the present."""
        return None if self.past is None else self.past.at

    @cached_property
    def clusters(self) -> Mapping[str, ClusterSnapshot]:
        """Every cluster, by the name that it is shown under."""
        return clusters_by_name(self.snapshot)

    def health(self, clusters: Mapping[str, ClusterSnapshot]) -> tuple[ClusterHealth, ...]:
        """Judge clusters; announced work harms nothing."""
        basis = HealthBasis(max_age_seconds=self.settings.stale_after, allows_planned=True)
        judged: list[ClusterHealth] = []
        for name in sorted(clusters):
            judged += health_of({name: clusters[name]}, self.unreadable, self.now, basis).clusters
            self.give_way()
        return tuple(judged)

    @cached_property
    def raised(self) -> Mapping[str, Sequence[Raised]]:
        """The conditions that are raised, by the name of their cluster; under "" those of the monitor itself."""
        settings = self.settings.conditions._replace(severity_names={})  # pages have words of their own
        reported_at = job_reported_at(self.clusters.values())
        stale_after = self.settings.stale_after
        inputs = ConditionInputs(now=self.now, stale_after=stale_after, reported_at=reported_at, settings=settings)
        by_cluster = {"": raised({}, inputs)}
        for name, cluster in self.clusters.items():
            by_cluster[name] = [each for each in raised({name: cluster}, inputs) if each.cluster]
            self.give_way()
        return by_cluster

    def incident_links(self, ids: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the pages of incidents; on a page of the past without those that had not begun."""
        return tuple((each, links.incident(each, self.at)) for each in ids if each not in self._not_begun)

    @cached_property
    def _not_begun(self) -> frozenset[str]:
        """Ids of the incidents that began after the moment of a page of the past."""
        if self.past is None or self.archive is None:
            return frozenset()
        try:
            return frozenset(shown_id(row) for row in self.archive.all() if row["opened_at"] > self.now)
        except IsrwatchError:
            return frozenset()

    def is_stale(self, cluster: ClusterSnapshot) -> bool:
        """Return whether the data of a cluster is too old to say anything about the moment that is shown."""
        return cluster.is_stale(self.now, self.settings.stale_after)


def level_of(judged: ClusterHealth, conditions: Sequence[Raised] = ()) -> Level:
    """Return how bad a cluster is: by its health, and by what is raised of it."""
    if judged.status is HealthStatus.UNKNOWN:
        return Level.UNKNOWN
    levels = [OF_HEALTH[each.severity] for each in judged.reasons]
    levels += [OF_SEVERITY.get(each.severity, Level.WARNING) for each in conditions if not each.is_over]
    return min(levels, key=lambda level: level.rank, default=Level.HEALTHY)


class PageLink(NamedTuple):
    """Words that lead to a path."""

    words: str
    path: str


class Notice(NamedTuple):
    """A sentence that is true of the whole page, and where it leads."""

    level: Level
    text: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageModel:
    """Parts that every page has.

    Attributes:
        title: of the window: the worst first.
        heading: what the page is about.
        path: of the page, without its query.
        now: the moment that is shown.
        past: of a page of the past.
        requested_at: when the page was asked for.
        trail: the pages above it.
        notices: sentences about the whole page.
        query: parameters that a form for another moment carries on.
        metrics_path: of the metrics for Prometheus.
        moment: a moment that can be shown, as a form has it.
        url: address of the exporter as others reach it; "" while that is not known.
    """

    template: ClassVar[str]
    title: str
    heading: str
    path: str
    now: int
    past: PastMoment | None = None
    requested_at: int = 0
    trail: tuple[PageLink, ...] = ()
    notices: tuple[Notice, ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    metrics_path: str = "/metrics"
    moment: str = ""
    url: str = ""

    @property
    def at(self) -> int | None:
        """The moment that links carry on; None of the present."""
        return None if self.past is None else self.past.at

    @property
    def fleet_path(self) -> str:
        """Path of the page of all clusters."""
        return links.fleet(self.at)

    @property
    def incidents_path(self) -> str:
        """Path of the list of incidents."""
        return links.incidents(self.at)

    @property
    def address(self) -> str:
        """Address of this page, which a printed one shows; without that of the exporter the path."""
        return self.url.rstrip("/") + self.moved(self.at)

    @property
    def shown_before(self) -> float:
        """Seconds between the moment that is shown and the request."""
        return (self.requested_at - self.now) / SECOND

    def moved(self, at: int | None) -> str:
        """Return the path of this page at another moment; None is now."""
        return links.moved(self.path, self.query, at)


def frame_of(inputs: Inputs) -> dict[str, Any]:
    """Return what a page has of its request alone."""
    return {
        "path": inputs.path,
        "now": inputs.now,
        "past": inputs.past,
        "requested_at": inputs.requested_at,
        "moment": links.moment_text(_newest(inputs) // SECOND * SECOND),
        "metrics_path": inputs.settings.metrics_path,
        "url": inputs.installations.url,
        "query": tuple((name, value) for name, values in inputs.query.items() for value in values),
    }


def _newest(inputs: Inputs) -> int:
    """Return the moment of a page of the past, or else the newest that the tables show, as far as is known."""
    if inputs.at is not None:
        return inputs.at
    observed = (each.observed_until for each in inputs.clusters.values())
    return max((at for at in observed if at is not None), default=inputs.now)


def notices_of(inputs: Inputs) -> tuple[Notice, ...]:
    """Return what is wrong with the exporter and its tables."""
    return tuple(Notice(Level.UNKNOWN, text) for text in inputs.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalPage(PageModel):
    """Answer to a request for what is not there, or cannot be shown: a sentence, and what there is instead."""

    template: ClassVar[str] = "refusal.html"
    sentence: str
    choices: tuple[PageLink, ...] = ()


class PageRefused(Exception):
    """A page cannot be shown: status, sentence and what there is instead."""

    def __init__(self, status: int, sentence: str, choices: Sequence[PageLink] = ()) -> None:
        """Refuse a request."""
        super().__init__(sentence)
        self.status, self.sentence, self.choices = status, sentence, tuple(choices)


class PageMoved(Exception):
    """A page has another path."""

    def __init__(self, path: str) -> None:
        """Lead to a path."""
        super().__init__(path)
        self.path = path


def refusal(refused: PageRefused, inputs: Inputs) -> RefusalPage:
    """Return the page of a refusal."""
    return RefusalPage(
        **frame_of(inputs),
        title=f"{refused.sentence} - isrwatch",
        heading="Not shown",
        sentence=refused.sentence,
        choices=refused.choices,
    )


# Templates. A value that is a text is made printable, a number has its thousands separated, None is unknown.


_PARTS: Final = 200
_UNKNOWN: Final = Markup('<abbr title="unknown">?</abbr>')


def rendered(page: PageModel, give_way: Callable[[], None] = lambda: None) -> str:
    """Return the HTML of a page; ``give_way`` is called often meanwhile."""
    parts: list[str] = []
    for part in environment().get_template(page.template).generate(page=page):
        parts.append(part)
        if len(parts) % _PARTS == 0:
            give_way()
    return "".join(parts)


@cache
def environment() -> Environment:
    """Return the templates of this installation."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (_here, _ago, _lines, _whole, utc, to_the_millisecond, lasting, count, words_of, visible_name)
    made.filters |= {each.__name__.removeprefix("_"): each for each in filters}
    made.globals |= {"style": Markup(STYLE)}  # noqa: S704 - our own style
    return made


def _shown(value: Any) -> Any:  # noqa: ANN401 - any value of a model
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, Markup) or not isinstance(value, str) else with_short_words(printable(value))


@pass_context
def _here(context: Context, path: str) -> Markup:
    """Return a path as the value of ``href`` on this page: whole, however long its names are."""
    return escape(links.relative(path, context["page"].path))


def utc(micros: int | None) -> Markup:
    """Write a moment to the second; what is on a page is UTC, which its foot says."""
    if micros is None:
        return _UNKNOWN
    at = datetime.fromtimestamp(micros // SECOND, UTC)
    return Markup('<time datetime="{}">{}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%Y-%m-%d %H:%M:%S}")


def to_the_millisecond(micros: int) -> Markup:
    """Write a moment as Kafka gives it: two changes may have the same second."""
    at = datetime.fromtimestamp(micros // SECOND, UTC)
    exact = f".{micros % SECOND // 1000:03}"
    return Markup('<time datetime="{}">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%S}{exact}Z", f"{at:%Y-%m-%d %H:%M:%S}{exact}"
    )


def lasting(seconds: float | None) -> str | None:
    """Write a duration in its two largest units; None is unknown.

    >>> lasting(0.4), lasting(75), lasting(7_260), lasting(200_000)
    ('0 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds is None:
        return None
    whole = int(max(0, seconds))
    for unit, name, small, small_name in ((_DAY, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"


@pass_context
def _ago(context: Context, micros: int | None) -> str | None:
    """Write how long before the moment of the page something was, or after it."""
    if micros is None:
        return None
    seconds = (context["page"].now - micros) / SECOND
    return f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"


def count(number: int | None, one: str, plural: str | None = None) -> str:
    """Write a number of things.

    >>> count(1, "broker"), count(2_000, "broker"), count(None, "match", "matches")
    ('1 broker', '2,000 brokers', 'an unknown number of matches')
    """
    several = plural or f"{one}s"
    if number is None:
        return f"an unknown number of {several}"
    return f"{number:,} {one if number == 1 else several}"


def visible_name(name: str) -> str:
    """Return a name as people see it; an empty one is visible."""
    return name or '""'


def words_of(name: str) -> str:
    """Write the name of a condition, a class or a cause as words.

    >>> words_of("under_min_isr"), words_of("elr_election")
    ('under min ISR', 'ELR election')
    """
    return _ABBREVIATIONS.sub(lambda word: word[0].upper(), name.replace("_", " "))


def _whole(value: str | float) -> Markup:
    """Return a text or a number as the value of an attribute, as it is; what is not printable is a reference."""
    return Markup("").join(char if char.isprintable() else Markup(f"&#{ord(char)};") for char in str(value))  # noqa: S704 - a number


def _lines(text: str) -> Markup:
    """Write a text of several lines, such as a command: whole, each line printable."""
    return Markup("\n").join(map(printable, text.split("\n")))
