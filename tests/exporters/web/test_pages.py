"""The pages of the exporter over real tables: with trouble, without, stale, unreadable, empty and with odd names."""

from __future__ import annotations

import html.parser
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from exporters.answers import links
from exporters.answers.links import PageKind, target_of
from exporters.read_model.reader import micros_now
from exporters.web.server import serving
from streaming.settings import ExportSettings
from streaming.web.server import SECURITY_HEADERS
from tests.exporters.conftest import SECOND, Rows, Tables, write_live_cluster
from tests.exporters.web.test_app import ask
from tests.plugins.local_http import wait_until

SETTINGS = ExportSettings(listen="127.0.0.1:0", refresh_interval=0.02)
VOID = {"meta", "input", "br", "hr", "link", "img"}
ALLOWED = {
    *(
        "html",
        "head",
        "body",
        "meta",
        "title",
        "style",
        "nav",
        "main",
        "section",
        "footer",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
    ),
    *("a", "abbr", "span", "small", "strong", "b", "em", "mark", "code", "pre", "time", "ul", "ol", "li", "dl", "dt"),
    *("dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "form", "label", "input", "select", "option"),
    *("div", "button", "svg", "g", "rect", "line", "path", "circle", "text", "desc"),
}


class Parsed(html.parser.HTMLParser):
    """A page: every element is closed in order, and what is in it."""

    def __init__(self, body: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.feed(body.decode())
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.problems.append(f"<{tag}> repeats an attribute")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes another element")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append((self.open[-1], data))

    @property
    def text(self) -> str:
        return " ".join("".join(data for _, data in self.texts).split())

    @property
    def related(self) -> list[tuple[str, str | None]]:
        return [(str(each["href"]), each.get("rel")) for _, each in self.elements if "href" in each]

    @property
    def links(self) -> list[str]:
        return [link for link, _ in self.related]

    @property
    def inputs(self) -> dict[str, str]:
        return {str(each["name"]): str(each["value"]) for tag, each in self.elements if tag == "input"}

    def of(self, tag: str) -> list[str]:
        return [data for inside, data in self.texts if inside == tag]


def parsed(body: bytes) -> Parsed:
    """Parse a page, and check what holds of every page."""
    page = Parsed(body)
    assert page.problems == []
    assert {tag for tag, _ in page.elements} <= ALLOWED
    assert not any(name.startswith("on") or name == "style" for _, each in page.elements for name in each)
    ids = [each["id"] for _, each in page.elements if "id" in each]
    assert len(ids) == len(set(ids))
    headings = [int(tag[1]) for tag, _ in page.elements if tag in {"h1", "h2", "h3"}]
    assert headings[:1] == [1]
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert all("scope" in each for tag, each in page.elements if tag == "th")
    assert all("for" in each for tag, each in page.elements if tag == "label")
    assert ("a", {"class": "skip", "href": "#main"}) in page.elements
    return page


def get(address: str, path: str, status: int = 200) -> Parsed:
    answered, headers, body = ask(address, path)
    assert (path, answered) == (path, status)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    return parsed(body)


def crawl(address: str, *starts: str, leave_out: Collection[str] = ()) -> dict[str, Parsed]:
    """Follow every link from some pages; each responds, and each page is well-formed."""
    found: dict[str, Parsed] = {}
    waiting = list(starts)
    while waiting:
        path = waiting.pop()
        if path in found or path.startswith(("/api/", "/-/", "/metrics", "/runbook")):
            continue
        if path.partition("?")[0].endswith(".md"):
            assert ask(address, path)[0] == 200
            continue
        found[path] = page = get(address, path)
        waiting += [
            urljoin(f"http://{address}{path}", link).removeprefix(f"http://{address}")
            for link, relation in page.related
            if not link.startswith(("#", "http")) and relation not in leave_out
        ]
    return found


@contextmanager
def served(tables: Path, settings: ExportSettings = SETTINGS) -> Iterator[str]:
    with serving(tables, settings) as address:
        wait_until(lambda: ask(address, "/-/ready")[0] == 200)
        yield address


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster with something of everything, in trouble now."""
    tables = Tables(tmp_path_factory.mktemp("trouble") / "tables")
    write_live_cluster(tables, micros_now())
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"main-4" in ask(address, "/")[2])
        yield address


def test_every_link_of_every_page_responds(trouble: str) -> None:
    pages = crawl(trouble, "/", "/incidents?cluster=main&class=broker_loss&since=30d")
    kinds = Counter(target.kind for path in pages if (target := target_of(path.partition("?")[0])))
    assert set(kinds) == {*PageKind} - {PageKind.INCIDENT_MARKDOWN}
    assert all(page.of("title")[0].endswith(" - isrwatch") for page in pages.values())


def test_every_link_of_a_page_of_the_past_stays_in_the_past(trouble: str) -> None:
    moment = get(trouble, "/").inputs["at"]
    pages = crawl(trouble, f"/?at={moment}", leave_out={"prev", "next", "now"})
    assert len(pages) > 8
    for path, page in pages.items():
        assert path.endswith(f"at={moment}")
        assert "The past: this page shows" in page.text
        assert page.inputs["at"] == moment


def test_the_fleet_says_what_is_wrong_and_leads_to_it(trouble: str) -> None:
    page = get(trouble, "/")
    assert page.of("title") == ["\u2716 1 of 1 cluster critical - isrwatch"]
    assert "broker_loss in a test" in page.text
    assert {"./clusters/main", "./incidents/main-4"} <= set(page.links)


def test_the_fleet_is_well_only_with_fresh_data_and_nothing_wrong(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    partition = rows.partition("orders", 0, rows.state([1, 2], [1, 2], 1), now)
    tables.commit(rows.cluster_row(now), rows.broker(1, now), rows.broker(2, now), partition, rows.source(now))
    with served(tables.directory, replace(SETTINGS, stale_after=2.0)) as address:
        assert get(address, "/").of("title") == ["\u2714 1 of 1 cluster healthy - isrwatch"]
        wait_until(lambda: b"? unknown" in ask(address, "/")[2])
        page = get(address, "/")
        assert page.of("title") == ["? 1 of 1 cluster unknown - isrwatch"]
        assert "unknown: its data is too old to say anything about now; last observed 2 s ago" in page.text
        assert "(0)" in page.text


def test_without_tables_the_fleet_says_why_and_other_pages_do_not_pretend(tmp_path: Path) -> None:
    with serving(tmp_path, SETTINGS) as address:
        page = get(address, "/")
        assert page.of("title") == ["no data yet - isrwatch"]
        assert f"there are no tables in {tmp_path} yet; start isrwatch job" in page.text
        assert "start isrwatch job" in get(address, links.cluster("main"), 503).text


def test_clusters_stand_worst_first_and_unknown_between_broken_and_well(tables: Tables) -> None:
    now = micros_now()
    changes: list[Any] = []
    for name, isr, at in (
        ("well", [1, 2], now),
        ("lost", [], now),
        ("old", [1, 2], now - 3600 * SECOND),
        ("weak", [1], now),
    ):
        rows = Rows(cluster_id=f"id-of-{name}", cluster=name)
        leader = isr[0] if isr else -1
        changes += [rows.cluster_row(at), rows.broker(1, at), rows.broker(4, at), rows.source(at)]
        changes.append(rows.partition("orders", 0, rows.state([1, 4], isr, leader, min_isr=1), at))
    tables.commit(*changes)
    with served(tables.directory) as address:
        page = get(address, "/")
        listed = [link.removeprefix("./clusters/") for link in page.links if link.startswith("./clusters/")]
        assert listed == ["lost", "weak", "old", "well"]
        assert page.of("title") == ["\u2716 1 of 4 clusters critical - isrwatch"]
