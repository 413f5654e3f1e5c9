"""Links of alerts and boards to the exporter's pages, as templates of Prometheus and as data links of Grafana.

Paths are made by ``exporters.answers.links`` alone: here a template takes the place of each name in such a path, and
encodes the name as that file does. ``tests/dashboards/test_links.py`` compares both over odd names, in Prometheus.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from exporters.answers import links

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CLUSTER, _NAME, _NUMBER = "0cluster0", "0name0", 4_000_000_007
"""Stand for names in paths; encoding changes none of them."""
_PATHS: Final = {
    "incident": links.incident(_NAME),
    "group": links.group(_CLUSTER, _NAME),
    "topic": links.topic(_CLUSTER, _NAME),
    "broker": links.broker(_CLUSTER, _NUMBER),
    "cluster": links.cluster(_CLUSTER),
}
"""The path of a page by its subject, the narrower subject first."""
_AS_SEGMENT: Final = r'reReplaceAll "^(~|[.]{0,2}$)" "~$1" | urlquery | reReplaceAll "[+]" "%20"'
"""A part of a template that encodes a name as a segment of a path: ``urlquery`` writes a space as ``+``."""
_AS_PARAMETER: Final = "urlquery"
_BROKER: Final = 'reReplaceAll ":.*" ""'
"""A part of a template that leaves the broker of ``BROKER:DIRECTORY``."""


def page_of_alert(url: str, about: Mapping[str, str]) -> str | None:
    """Return the link of an alert to the page that says most about it, a template of Prometheus; none without ``url``.

    That is the page of its incident; without one, that of its group, topic or broker, or else of its cluster. ``about``
    has the label of the alert for each.
    """
    if not url:
        return None
    of_cluster = f"$labels.{about.get('cluster', 'cluster')}"
    kind = next((each for each in ("group", "topic", "broker") if each in about and "cluster" in about), "cluster")
    subject = _filled(kind, of_cluster, f"$labels.{about.get(kind, '')}")
    short_id = f"$labels.{about.get('incident', 'short_id')}"
    of_incident = f"{{{{ if {short_id} }}}}{_filled('incident', '', short_id)}"
    of_subject = f"{{{{ else if {of_cluster} }}}}{subject}"
    return f"{url.rstrip('/')}{of_incident}{of_subject}{{{{ else }}}}{links.fleet()}{{{{ end }}}}"


def _filled(kind: str, cluster: str, name: str) -> str:
    as_name = {"group": _AS_PARAMETER, "broker": f"{_BROKER} | {_AS_PARAMETER}"}.get(kind, _AS_SEGMENT)
    path = _PATHS[kind].replace(_CLUSTER, f"{{{{ {cluster} | {_AS_SEGMENT} }}}}")
    return re.sub(f"{_NAME}|{_NUMBER}", lambda _: f"{{{{ {name} | {as_name} }}}}", path)


# Boards. Where a cell leads to the board of a broker, topic, group or cluster, it leads to its page, too.


_OF_BOARD: Final = "${cluster:percentencode}"
_TO_BOARD: Final = re.compile(r"/d/isrwatch-\w+\?.*&var-(broker|topic|group|cluster)=(\$\{[\w.]+:percentencode\})&.*")


def page_of_cell(url: str, kind: str, cell: str) -> str:
    """Return the address of the page of what a cell shows, a template of Grafana."""
    path = _PATHS[kind].replace(_CLUSTER, cell if kind == "cluster" else _OF_BOARD)
    return url.rstrip("/") + re.sub(f"{_NAME}|{_NUMBER}", lambda _: cell, path)


def with_pages(url: str, board: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a board in which each link from a cell to a board has one to the exporter's page next to it.

    A name that begins with ``~`` has no link that leads to it: Grafana cannot mark it.
    """
    if isinstance(board, list):
        return [more for each in board for more in (with_pages(url, each), *_next_to(url, each))]
    return {key: with_pages(url, each) for key, each in board.items()} if isinstance(board, dict) else board


def _next_to(url: str, link: Any) -> Iterator[dict[str, str]]:  # noqa: ANN401 - any JSON
    to_board = _TO_BOARD.fullmatch(link.get("url", "")) if isinstance(link, dict) and "title" in link else None
    if url and to_board:
        kind, cell = to_board.groups()
        yield {"title": f"Show this {kind} in isrwatch", "url": page_of_cell(url, kind, cell)}
