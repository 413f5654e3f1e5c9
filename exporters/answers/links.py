"""Paths of the exporter's pages: made and read here and nowhere else.

A name of a cluster, a topic or a group may hold anything, so each is one percent-encoded segment of the path, or a
parameter: :func:`target_of` reads the path as it was sent, where an encoded ``/`` is no separator. A segment that
browsers would remove or resolve (empty, ``.`` and ``..``, encoded or not) is marked with ``~``.

Paths begin with ``/``; what is shown on a page is made relative to it (:func:`relative`), so that pages also work
behind a proxy with a path of its own.
"""

from __future__ import annotations

import datetime as dt
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FLEET: Final = "/"
INCIDENTS: Final = "/incidents"
RUNBOOK: Final = "/runbook"
MARKDOWN: Final = ".md"
_ENCODED: Final = "%2Emd"  # the same at the end of an id
_CLUSTERS: Final = "/clusters"
_MARK: Final = "~"
_VANISH: Final = frozenset({"", ".", ".."})
_BROKER: Final = re.compile(r"[0-9]{1,10}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class PageKind(StrEnum):
    """Subject of a page."""

    FLEET = "fleet"
    CLUSTER = "cluster"
    BROKER = "broker"
    TOPIC = "topic"
    GROUPS = "groups"
    INCIDENTS = "incidents"
    INCIDENT = "incident"
    INCIDENT_MARKDOWN = "incident_markdown"


class Target(NamedTuple):
    """Subject of a path: a kind of page, the cluster, and the name of a broker or topic, or the id of an incident."""

    kind: PageKind
    cluster: str = ""
    name: str = ""


def fleet(at: int | None = None) -> str:
    """Return the path of the page of all clusters."""
    return FLEET + _query(at)


def cluster(name: str, at: int | None = None) -> str:
    """Return the path of the page of a cluster."""
    return _path(_CLUSTERS, name) + _query(at)


def broker(cluster_name: str, number: int, at: int | None = None) -> str:
    """Return the path of the page of a broker."""
    return _path(_CLUSTERS, cluster_name, "brokers", str(number)) + _query(at)


def topic(cluster_name: str, name: str, at: int | None = None) -> str:
    """Return the path of the page of a topic."""
    return _path(_CLUSTERS, cluster_name, "topics", name) + _query(at)


def groups(cluster_name: str, at: int | None = None) -> str:
    """Return the path of the list of the groups of a cluster."""
    return _path(_CLUSTERS, cluster_name, "groups") + _query(at)


def group(cluster_name: str, name: str, at: int | None = None) -> str:
    """Return the path of the page of a group."""
    return _path(_CLUSTERS, cluster_name, "groups") + _query(at, name=name)


def incidents(
    at: int | None = None, *, cluster_name: str | None = None, kind: str | None = None, since: str | None = None
) -> str:
    """Return the path of the list of incidents, filtered."""
    return INCIDENTS + _query(at, **{"cluster": cluster_name, "class": kind, "since": since})


def incident(any_id: str, at: int | None = None) -> str:
    """Return the path of the page of an incident; its short id is the one that people can say."""
    path = _path(INCIDENTS, any_id)
    is_like_markdown = path.endswith(MARKDOWN)
    return (path.removesuffix(MARKDOWN) + _ENCODED if is_like_markdown else path) + _query(at)


def incident_markdown(any_id: str) -> str:
    """Return the path of the post-mortem of an incident in Markdown."""
    return _path(INCIDENTS, any_id) + MARKDOWN


def runbook(section: str, values: Mapping[str, str]) -> str:
    """Return the path of a section of the runbook, filled in with names."""
    return moved(f"{RUNBOOK}/{quote(section, safe='')}", values.items(), None)


def moved(path: str, query: Iterable[tuple[str, str]], at: int | None) -> str:
    """Return the path of a page with its own parameters, at another moment; None is now."""
    given = [*query, *([] if at is None else [("at", moment_text(at))])]
    return path + (f"?{urlencode(given, safe=':', errors='surrogatepass')}" if given else "")


def moment_text(at: int) -> str:
    """Return a moment, UTC microseconds, as ``?at=`` has it.

    >>> moment_text(1_772_361_000_000_000), moment_text(1_772_361_000_250_000)
    ('2026-03-01T10:30:00Z', '2026-03-01T10:30:00.250000Z')
    """
    return (_EPOCH + dt.timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")


def relative(path: str, page: str) -> str:
    """Return a path as a link on a page: relative to the path of that page, and never taken for a scheme or a host.

    >>> relative("/clusters/prod", "/clusters/prod/brokers/3"), relative("/", "/")
    ('../../../clusters/prod', './')
    """
    up = "../" * (page.partition("?")[0].count("/") - 1)
    return (up or "./") + path.removeprefix("/")


def target_of(raw_path: str) -> Target | None:
    """Return what a path, as it was sent and without its query, leads to; None if it is no page."""
    segments = raw_path.split("/")[1:]
    match segments:
        case [""]:
            return Target(PageKind.FLEET)
        case ["incidents"]:
            return Target(PageKind.INCIDENTS)
        case ["incidents", segment]:
            is_markdown = segment.endswith(MARKDOWN)
            kind = PageKind.INCIDENT_MARKDOWN if is_markdown else PageKind.INCIDENT
            return _target(kind, _MARK, segment.removesuffix(MARKDOWN) if is_markdown else segment)
        case ["clusters", *names]:
            return _of_cluster(names)
    return None


def path_of(target: Target, at: int | None = None) -> str:
    """Return the path of a page of a cluster, without parameters of its own."""
    made = {
        PageKind.CLUSTER: lambda: cluster(target.cluster, at),
        PageKind.BROKER: lambda: broker(target.cluster, int(target.name), at),
        PageKind.TOPIC: lambda: topic(target.cluster, target.name, at),
        PageKind.GROUPS: lambda: groups(target.cluster, at),
    }
    return made[target.kind]()


def _of_cluster(segments: list[str]) -> Target | None:
    match segments:
        case [name]:
            return _target(PageKind.CLUSTER, name)
        case [name, "groups"]:
            return _target(PageKind.GROUPS, name)
        case [name, "topics", topic_name]:
            return _target(PageKind.TOPIC, name, topic_name)
        case [name, "brokers", number] if _BROKER.fullmatch(number):
            return _target(PageKind.BROKER, name, number)
    return None


def _target(kind: PageKind, *segments: str) -> Target | None:
    try:
        return Target(kind, *map(_read, segments)) if all(segments) else None
    except UnicodeDecodeError:
        return None


def _path(prefix: str, *segments: str) -> str:
    return "/".join([prefix, *map(_segment, segments)])


def _segment(name: str) -> str:
    marked = _MARK + name if name in _VANISH or name.startswith(_MARK) else name
    return quote(marked, safe="", errors="surrogatepass")


def _read(segment: str) -> str:
    return unquote(segment, errors="surrogatepass").removeprefix(_MARK)


def _query(at: int | None, **more: str | None) -> str:
    return moved("", [(name, value) for name, value in more.items() if value is not None], at)
