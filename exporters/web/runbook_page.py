"""The runbook as HTML, rendered on the server: one alert, filled in, or the list of all.

Pages work without a script: a click on a block selects all of it. Links are relative, so that they also work behind a
proxy with a path of its own, and carry the names on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from markdown_it import MarkdownIt
from starlette.responses import HTMLResponse, RedirectResponse

from exporters.answers import links
from exporters.web.runbook import LABELS, PATH, SETUP, filled, first_sentence, for_shell, known_values, runbook
from exporters.web.runbook_commands import Installations, for_platform, values_of_blocks
from streaming.web.markup import document, link, sentence, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from exporters.web.runbook import Runbook

_NOT_FOUND: Final = 404


async def runbook_list(request: Request) -> Response:
    """Respond with every alert and what it means."""
    return HTMLResponse(list_page(runbook(), known_values(request.query_params)))


async def runbook_section(request: Request) -> Response:
    """Respond with what an alert means and what to do; 404 with the nearest name if there is no such alert."""
    values = known_values(request.query_params)
    return response_of(runbook(), request.path_params["name"], values, request.app.state.installations)


_NONE: Final = Installations()


def response_of(book: Runbook, name: str, values: Mapping[str, str], installations: Installations = _NONE) -> Response:
    """Return the response for the name of an alert; a name that shares the section of another one leads there."""
    if name in book.sections:
        return HTMLResponse(section_page(book, name, values, installations))
    if name in book.shared:
        return RedirectResponse(_link(book.shared[name], values))
    return HTMLResponse(unknown_page(book, name, values), _NOT_FOUND)


def section_page(book: Runbook, name: str, values: Mapping[str, str], installations: Installations = _NONE) -> str:
    """Return the HTML of a section: for the platform of the cluster, as far as the configuration has it."""
    names = {each.lower(): each for each in book.sections}
    cluster = values.get("cluster", "")
    html = partial(_html, names=names, values=values, more=installations.labels(cluster))
    setup, section = (for_platform(each, installations.platform(cluster)) for each in (book.setup, book.sections[name]))
    to_setup = f"<p>The blocks use names that you set once: <a href=#setup>{SETUP}</a>.</p>"
    parts = [_about(values), to_setup, html(section), f"<h2 id=setup>{SETUP}</h2>{html(setup)}"]
    if "<mark>" in "".join(parts):
        parts.append("<p>Marked names are left to you to fill in.</p>")
    return _document(name, links.runbook(name, {}), values, *parts)


def _document(title: str, path: str, values: Mapping[str, str], *body: str) -> str:
    """Return a page of the runbook, with the ways back to the pages that it is about."""
    cluster, broker, topic = (values.get(name, "") for name in ("cluster", "broker", "topic"))
    group = values.get("group", "")
    ways = {links.fleet(): "isrwatch: all clusters"}
    if cluster:
        ways[links.cluster(cluster)] = cluster
        ways |= {links.broker(cluster, int(broker)): f"broker {broker}"} if broker else {}
        ways |= {links.topic(cluster, topic): topic} if topic else {}
        ways |= {links.group(cluster, group): group} if group else {}
    ways |= {links.incidents(cluster_name=cluster or None): "Incidents", _link(PATH, values): "Runbook"}
    items = "".join(f"<li>{link(links.relative(way, path), words)}</li>" for way, words in ways.items())
    return document(title, *body, before=f"<nav class=trail aria-label=Pages><ul>{items}</ul></nav>")


def _about(values: Mapping[str, str]) -> str:
    """Return a line with what is filled in."""
    given = ", ".join(f"{label} <b>{text(values[label])}</b>" for label in LABELS if label in values)
    return f"<p>{given}</p>" if given else ""


def list_page(book: Runbook, values: Mapping[str, str]) -> str:
    """Return the HTML of the list of all alerts."""
    names = {each.lower(): each for each in book.sections}
    items = (
        f"<dt>{link(_link(f'runbook/{name}', values), name)}</dt>"
        f"<dd>{_html(first_sentence(section), names=names, values=values)}</dd>"
        for name, section in book.sections.items()
    )
    return _document("Runbook", PATH, values, _about(values), f"<dl>{''.join(items)}</dl>")


def unknown_page(book: Runbook, name: str, values: Mapping[str, str]) -> str:
    """Return the HTML for a name that no alert has."""
    nearest = book.nearest(name)
    to_nearest = f"<p>Nearest: {link(_link(nearest, values), nearest)}</p>"
    unknown = f"The runbook has no alert {name[:80]}."
    return _document("Runbook", f"{PATH}/-", values, sentence(unknown, is_good=False), to_nearest)


def _link(path: str, values: Mapping[str, str]) -> str:
    return path + (f"?{urlencode(values)}" if values else "")


# Markdown as HTML. What is filled in goes into the tokens, as text, so it is escaped like the text around it.


_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_LEFT: Final = "\ue000{}\ue001"
_MARKS: Final = str.maketrans({"\ue000": "<mark>", "\ue001": "</mark>"})
"""No name that is filled in has these two characters, which are not printable."""
_IN_CODE: Final = frozenset({"fence", "code_inline"})
_NOTHING: Final[Mapping[str, str]] = {}


def _html(
    markdown: str, *, names: Mapping[str, str], values: Mapping[str, str], more: Mapping[str, str] = _NOTHING
) -> str:
    """Return Markdown as HTML, filled in; links lead to the pages of the alerts, and a placeholder is marked.

    ``more`` is filled in, too, and no link carries it.
    """
    tokens = _PARSER.parse(markdown)
    filled_in = values_of_blocks({**values, **more})
    shell = for_shell(filled_in)
    for token in (each for block in tokens for each in (block, *(block.children or ()))):
        if token.type != "inline":
            token.content = filled(token.content, shell if token.type in _IN_CODE else filled_in, left=_LEFT)
        if token.type == "link_open":
            token.attrs = {"href": _link(names[str(token.attrs["href"]).removeprefix("#")], values)}
    html = str(_PARSER.renderer.render(tokens, _PARSER.options, {}))
    return html.translate(_MARKS)
