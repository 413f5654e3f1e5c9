"""The routes of the pages: a path is read, the model of its page is made, and rendered.

Pages are made in a few threads of their own, and these give way to scrapes. A page of the present is made from the
snapshot and the archive in memory; one of the past reads the tables as of its moment.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from exporters.answers.incidents import report
from exporters.answers.links import MARKDOWN, PageKind, Target, moved, path_of, relative, target_of
from exporters.answers.post_mortem import markdown
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.past import EVERYTHING, ChangeScope, MomentRefused
from exporters.read_model.snapshot import NO_TABLE
from exporters.read_model.times import Version, read_moment
from exporters.web.bodies import OF_PAGES, SharedBodies
from exporters.web.pages.broker import broker_page
from exporters.web.pages.cluster import cluster_page
from exporters.web.pages.fleet import fleet_page
from exporters.web.pages.group import groups_page
from exporters.web.pages.incident import IncidentHistories, found_incident, incident_page
from exporters.web.pages.incidents import incidents_page
from exporters.web.pages.page import (
    Inputs,
    PageLink,
    PageModel,
    PageMoved,
    PageRefused,
    PageSettings,
    PastMoment,
    refusal,
    rendered,
)
from exporters.web.pages.topic import topic_page
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.web.responses import lines_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.types import Scope as RequestScope

    from exporters.answers.subject import Tables
    from exporters.read_model.incident_archive import IncidentArchive
    from exporters.read_model.refresher import Refresher
    from exporters.read_model.snapshot import ReplicationSnapshot

PATTERNS: Final = {
    PageKind.FLEET: "/",
    PageKind.CLUSTER: "/clusters/{cluster}",
    PageKind.BROKER: "/clusters/{cluster}/brokers/{broker}",
    PageKind.TOPIC: "/clusters/{cluster}/topics/{topic}",
    PageKind.GROUPS: "/clusters/{cluster}/groups",
    PageKind.INCIDENTS: "/incidents",
    PageKind.INCIDENT: "/incidents/{incident}",
    PageKind.INCIDENT_MARKDOWN: "/incidents/{incident}.md",
}
"""Names of the pages in the metrics of requests."""
_AT: Final = "at"
_READ: Final = frozenset({PageKind.INCIDENT, PageKind.INCIDENT_MARKDOWN})
"""Kinds of pages that may read a table, whatever their moment."""
_READING_THREADS: Final = 3
MODELS: Final[Mapping[PageKind, Callable[[Inputs, Target], PageModel]]] = {
    PageKind.FLEET: lambda inputs, _: fleet_page(inputs),
    PageKind.CLUSTER: lambda inputs, target: cluster_page(inputs, target.cluster),
    PageKind.BROKER: lambda inputs, target: broker_page(inputs, target.cluster, int(target.name)),
    PageKind.TOPIC: lambda inputs, target: topic_page(inputs, target.cluster, target.name),
    PageKind.GROUPS: lambda inputs, target: groups_page(inputs, target.cluster),
    PageKind.INCIDENTS: lambda inputs, _: incidents_page(inputs),
}


class PageRoute(Route):
    """The route of one kind of page. It reads the path as it was sent: a name may have a ``/`` in it."""

    def __init__(self, kind: PageKind, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        """Assign a kind of page to an endpoint."""
        super().__init__(PATTERNS[kind], endpoint, name=kind.value)
        self.kind = kind

    def matches(self, scope: RequestScope) -> tuple[Match, RequestScope]:
        """Return whether a request is for this kind of page."""
        target = target_of(sent_path(scope)) if scope["type"] == "http" else None
        if target is None or target.kind is not self.kind:
            return Match.NONE, {}
        inner = {"endpoint": self.endpoint, "path_params": {"target": target}}
        return (Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL), inner


def sent_path(scope: RequestScope) -> str:
    """Return the path of a request as it was sent, percent-encoded."""
    raw = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.decode("ascii", "replace").partition("?")[0]


class PageRoutes:
    """The responses of the pages."""

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a page is made of
        self,
        refresher: Refresher,
        clock: Callable[[], int],
        settings: PageSettings,
        problems: Callable[[], Iterator[str]],
        archive: IncidentArchive,
        tables: Callable[[int], Tables],
    ) -> None:
        """Respond from the snapshot of a refresher.

        Args:
            refresher: reads the tables in the background.
            clock: returns the time in UTC microseconds.
            settings: of pages.
            problems: returns what is wrong with the exporter itself, in sentences.
            archive: every incident.
            tables: returns what answers are made from, at a time in UTC microseconds.
        """
        self._refresher, self._clock, self._settings = refresher, clock, settings
        self._problems, self._archive, self._tables = problems, archive, tables
        self._in_memory, self._reading = CapacityLimiter(1), CapacityLimiter(_READING_THREADS)
        self.give_way: Callable[[], None] = lambda: None  # called while pages are made, often
        self._histories = IncidentHistories(archive)
        self._bodies = SharedBodies(clock, OF_PAGES)
        self._past = refresher.past

    def routes(self) -> list[PageRoute]:
        """Assign the paths; they stand before all others."""
        return [
            *(PageRoute(kind, partial(self._apart, self.respond)) for kind in (*MODELS, PageKind.INCIDENT)),
            PageRoute(PageKind.INCIDENT_MARKDOWN, partial(self._apart, self.respond_in_markdown)),
        ]

    async def _apart(self, respond: Callable[[Request], Response], request: Request) -> Response:
        """Respond in another thread. Pages from memory take turns: several at once would only delay scrapes."""
        return await to_thread.run_sync(
            respond, request, limiter=self._reading if _is_read(request) else self._in_memory
        )

    def respond(self, request: Request) -> Response:
        """Respond with a page; with a sentence and what there is instead, if it cannot be shown."""
        target: Target = request.path_params["target"]
        inputs = self._inputs(request)
        try:
            self._refuse_unless_ready(target)
            if _is_read(request):
                return HTMLResponse(self._page(request, inputs, target))
            asked = inputs.path, request.scope["query_string"]
            # Readers who look at the same page share it, so that scrapes wait for one.
            shared = self._bodies.shared(asked, inputs.snapshot, lambda _: self._page(request, inputs, target).encode())
            return HTMLResponse(shared)
        except PageRefused as refused:
            return HTMLResponse(rendered(refusal(refused, inputs)), refused.status)
        except PageMoved as elsewhere:
            return RedirectResponse(relative(elsewhere.path, inputs.path))

    def _page(self, request: Request, inputs: Inputs, target: Target) -> str:
        inputs = self._at_its_moment(request, inputs, target)
        make = self._incident if target.kind is PageKind.INCIDENT else MODELS[target.kind]
        page = make(inputs, target)
        self.give_way()
        return rendered(page, self.give_way)

    def _refuse_unless_ready(self, target: Target) -> None:
        if self._refresher.snapshot.version == NO_TABLE and target.kind is not PageKind.FLEET:
            raise PageRefused(503, self._refresher.why_not_ready())

    def respond_in_markdown(self, request: Request) -> Response:
        """Respond with the post-mortem of an incident."""
        target: Target = request.path_params["target"]
        inputs = self._inputs(request)
        try:
            self._refuse_unless_ready(target)
            return Response(self._post_mortem(inputs, target.name), media_type="text/markdown; charset=utf-8")
        except PageRefused as refused:
            return lines_response([refused.sentence], refused.status)
        except PageMoved as elsewhere:
            return RedirectResponse(relative(elsewhere.path + MARKDOWN, inputs.path))

    def _incident(self, inputs: Inputs, target: Target) -> PageModel:
        row = found_incident(inputs, self._archive, target.name)
        history, neighbours = self._histories.of(row), self._archive.neighbours(row)
        return incident_page(inputs, row, history, neighbours, self._archive.parts(row))

    def _post_mortem(self, inputs: Inputs, any_id: str) -> str:
        row = found_incident(inputs, self._archive, any_id)
        return markdown(report(self._tables(inputs.now), row["incident_id"], inputs.installations.url))

    def _inputs(self, request: Request) -> Inputs:
        """Return what the page of a request is made of at present."""
        now, given = self._clock(), QueryParams(request.scope["query_string"])
        return Inputs(
            snapshot=self._refresher.snapshot,
            now=now,
            settings=self._settings,
            path=sent_path(request.scope),
            archive=self._archive,
            unreadable=self._refresher.unreadable,
            problems=tuple(self._problems()),
            query={name: given.getlist(name) for name in given if name != _AT},
            requested_at=now,
            installations=request.app.state.installations,
            is_kept=self._is_kept,
            give_way=self.give_way,
        )

    def _is_kept(self, at: int) -> bool:
        try:
            return self._past.holds(at)
        except IsrwatchError:  # what cannot be read is linked from nowhere
            return False

    def _at_its_moment(self, request: Request, inputs: Inputs, target: Target) -> Inputs:
        """Return the same as of the moment that a request names, if it does.

        Raises:
            PageRefused: it names no moment, or one that cannot be shown.
        """
        given = [each for each in QueryParams(request.scope["query_string"]).getlist(_AT) if each.strip()]
        if not given:
            return inputs
        at = _moment(given, inputs)
        scope, begin = self._scope(replace(inputs, past=PastMoment(at)), target)
        try:
            if target.kind is PageKind.INCIDENTS:
                snapshot = self._names_alone(at, inputs)
            else:
                snapshot, scope = self._state(at, scope, inputs, target)
            previous = self._past.previous(at, scope)
            if previous is not None and previous < begin:
                previous = None
            past = PastMoment(at, previous, self._past.next(at, scope))
        except MomentRefused as refused:
            raise PageRefused(404, str(refused), self._possible(inputs)) from refused
        except IsrwatchError as error:
            raise PageRefused(503, f"the past cannot be read: {error}") from error
        # Without a table that the past needs there is no page: what cannot be read now says nothing of then.
        return replace(inputs, snapshot=snapshot, now=at, past=past, unreadable={})

    def _state(
        self, at: int, scope: ChangeScope, inputs: Inputs, target: Target
    ) -> tuple[ReplicationSnapshot, ChangeScope]:
        """Return the state at a moment, and the scope of the page: a name means the cluster that had it then."""
        then = self._past.snapshot(at, None if scope.cluster_id is None else (scope.cluster_id,))
        is_later = bool(target.cluster) and scope.cluster_id is not None and scope.cluster_id not in then.clusters
        snapshot = _under_names_of_now(self._past.snapshot(at) if is_later else then, inputs, target, at)
        if is_later and (before := clusters_by_name(snapshot).get(target.cluster)) is not None:
            scope = scope._replace(cluster_id=before.cluster.cluster_id)
        return snapshot, scope

    def _names_alone(self, at: int, inputs: Inputs) -> ReplicationSnapshot:
        """Return the clusters for the list of incidents, which needs no more than their names, those of today."""
        self._past.check(at)
        return inputs.snapshot

    def _scope(self, inputs: Inputs, target: Target) -> tuple[ChangeScope, int]:
        """Return whose changes a page is about, and before which moment there is no such page.

        A cluster is known by the name that it has now. An incident has no page before it began.
        """
        if target.kind is PageKind.INCIDENT:
            row = found_incident(inputs, self._archive, target.name)
            return ChangeScope(row["cluster_id"]), row["opened_at"]
        cluster = inputs.clusters.get(target.cluster) if target.cluster else None
        if cluster is None:
            return EVERYTHING, 0
        cluster_id = cluster.cluster.cluster_id
        if target.kind is PageKind.BROKER:
            return ChangeScope(cluster_id, broker=int(target.name)), 0
        return ChangeScope(cluster_id, topic=target.name if target.kind is PageKind.TOPIC else None), 0

    def _possible(self, inputs: Inputs) -> list[PageLink]:
        """Return links to the oldest and the newest moment that can be shown, and to the present."""
        shown = self._past.range()
        query = [(name, value) for name, values in inputs.query.items() for value in values]
        ends = () if shown is None else (("the oldest moment", shown[0]), ("the newest moment", shown[1]))
        choices = [PageLink(words, moved(inputs.path, query, at)) for words, at in ends]
        return [*choices, PageLink("now", moved(inputs.path, query, None))]


def _under_names_of_now(then: ReplicationSnapshot, inputs: Inputs, target: Target, at: int) -> ReplicationSnapshot:
    """Return a state of the past in which each cluster has the name that it has now, as its paths have it.

    Raises:
        PageMoved: a page was asked for under the name that its cluster had then.
    """
    now = inputs.snapshot.clusters
    renamed = {key: now[key].name for key, each in then.clusters.items() if key in now and now[key].name != each.name}
    namesake = inputs.clusters.get(target.cluster)
    is_free = namesake is None or namesake.cluster.cluster_id not in then.clusters
    for key, name in renamed.items():
        if then.clusters[key].name == target.cluster and is_free:
            raise PageMoved(path_of(target._replace(cluster=name), at))
    if not renamed:
        return then
    clusters = {
        key: replace(each, cluster=each.cluster._replace(cluster=renamed[key])) if key in renamed else each
        for key, each in then.clusters.items()
    }
    return replace(then, clusters=clusters)


def _is_read(request: Request) -> bool:
    """Return whether a page may read tables."""
    target: Target = request.path_params["target"]
    return target.kind in _READ or _AT in request.query_params


def _moment(given: list[str], inputs: Inputs) -> int:
    """Read the moment that a request names."""
    if len(given) > 1:
        raise PageRefused(400, f"at is given {len(given)} times; give it once")
    try:
        at = read_moment(given[0], inputs.requested_at)
    except ConfigurationError as error:
        raise PageRefused(400, f"at: {error}") from error
    if isinstance(at, Version):
        raise PageRefused(400, f"at is {given[0]!r}; give a time such as 2026-11-28T03:12:05Z, or a span such as 15m")
    return at
