"""The pages of the exporter over real tables: with trouble, without, stale, unreadable, empty and with odd names."""

from __future__ import annotations

import html.parser
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from exporters.answers import links
from exporters.answers.links import PageKind, Target, target_of
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.read_model.times import read_moment
from exporters.web.pages import routes
from exporters.web.pages.page import PageModel, rendered
from exporters.web.server import OPTION, Endpoints, application, serving
from streaming.runtime.listening import address_of, listen_all
from streaming.settings import ExportSettings
from streaming.web.server import SECURITY_HEADERS, WebServer
from streaming.web.server import serving as serving_http
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


def test_every_page_of_the_past_says_so_and_links_to_the_past(trouble: str) -> None:
    moment = get(trouble, "/").inputs["at"]
    at = read_moment(moment, 0)
    assert isinstance(at, int)
    for path in (
        links.fleet(at), links.cluster("main", at), links.broker("main", 3, at), links.topic("main", "orders", at),
        links.incident("main-4", at),
    ):  # fmt: skip
        page = get(trouble, path)
        assert "The past: this page shows" in page.text
        assert page.inputs["at"] == moment
        inside = [link for link, relation in page.related if relation is None and link[0] not in "#h"]
        of_pages = [link for link in inside if target_of(urlsplit(urljoin(f"http://h{path}", link)).path)]
        assert len(of_pages) > 2
        assert [link for link in of_pages if not link.endswith((f"at={moment}", ".md"))] == []
    assert "Groups are sampled, and samples are not kept" in get(trouble, links.groups("main", at)).text


def test_changes_next_to_a_moment_are_walked_through(trouble: str) -> None:
    path = links.cluster("main", read_moment(get(trouble, "/").inputs["at"], 0))  # type: ignore[arg-type]
    ways = {relation: link for link, relation in get(trouble, path).related}
    before = urljoin(f"http://{trouble}{path}", ways["prev"]).removeprefix(f"http://{trouble}")
    back = {relation: link for link, relation in get(trouble, before).related}
    assert target_of(before.partition("?")[0]) == target_of(path.partition("?")[0])
    assert "at=" not in back["now"]


@pytest.mark.parametrize(
    ("at", "status", "said"),
    [
        ("2001-01-01", 404, "nothing is recorded of 2001-01-01T00:00:00.000Z: give a moment from"),
        ("2999-01-01", 404, "nothing is recorded of 2999-01-01"),
        ("12", 400, "give a time such as"),
        ("999999d", 400, "cannot read the time '999999d'"),
        ("<b>", 400, "cannot read the time '<b>'"),
        ("1s&at=2s", 400, "at is given 2 times; give it once"),
        ("9999-12-31T23:59:59-14:00", 400, "cannot read the time"),
        ("2126-01-01T10:00:00+02:00", 404, "nothing is recorded of 2126-01-01T08:00:00.000Z"),
    ],
)
def test_a_moment_that_cannot_be_shown_is_refused_with_those_that_can(
    trouble: str, at: str, status: int, said: str
) -> None:
    assert get(trouble, f"/incidents?at={at}", status).of("h1") == ["Not shown"]
    page = get(trouble, f"/clusters/main?at={at}", status)
    assert said in page.text
    if status == 404:
        assert sum("?at=" in link for link in page.links) == 2
        assert get(trouble, urlsplit(urljoin("http://h/clusters/main", page.links[-5])).path)


ODD_GROUPS = ("", ".", "..", "a/b", "x" * 32_000, '"><b id=x>', "\u202egnp", "esc\x1b[31m", "~", "?name=y&at=1", "a\nb")
ODD_CLUSTER = "../<script>alert(1)</script>/metrics?#"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster, topics and groups whose names are as bad as names can be."""
    tables, rows, now = Tables(tmp_path_factory.mktemp("odd") / "tables"), Rows(cluster=ODD_CLUSTER), micros_now()
    partitions = [
        rows.partition(name, 0, rows.state([1, 2], [1], 1), now, left_isr=[2], cause="fenced")
        for name in ("..", "<img src=x onerror=alert(1)>", "a/b/../c", "y" * 300)
    ]
    tables.commit(rows.cluster_row(now), rows.broker(1, now), rows.broker(2, now), rows.source(now), *partitions)
    common = {**rows.owner, "collected_at": now, "source": "samples:1"}
    sampled = {**common, "topic_id": "id-of-..", "topic": "..", "partition": 0, "lag": 3}
    tables.put("group_offsets", *({**sampled, "group": group, "member": "<b>"} for group in ODD_GROUPS))
    tables.put(
        "groups",
        *(
            {**common, "group": group, "group_state": "<i>", "group_protocol": "", "coordinator": 1}
            for group in ODD_GROUPS
        ),
    )
    summary = "</title><script>alert(1)</script> \u202e"
    told = {"summary": summary, "consequence": summary, "next_step": summary, "topics": ["a/b/../c"], "brokers": [1]}
    tables.put(
        "incidents", rows.incident("loss:</e>", "broker_loss", now, short_id=f"{ODD_CLUSTER}-1", **told), as_of=0
    )
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"And 0 more" not in ask(address, links.groups(ODD_CLUSTER))[2])
        yield address


def test_names_are_only_names(odd: str) -> None:
    pages = crawl(odd, "/")
    targets = {target_of(path.partition("?")[0]) for path in pages}
    assert Target(PageKind.TOPIC, ODD_CLUSTER, "..") in targets
    assert Target(PageKind.INCIDENT, "", f"{ODD_CLUSTER}-1") in targets
    of_groups = [path for path in pages if "/groups?name=" in path]
    assert len(of_groups) == len(ODD_GROUPS)
    for page in pages.values():
        assert not {"b", "script", "img"} & {tag for tag, _ in page.elements}
        assert all(char.isprintable() or char in "\n\xa0" for _, text in page.texts for char in text)
    assert max(len(body.text) for body in pages.values()) < 20_000


def test_a_broker_that_is_down_has_its_condition_before_it_is_raised(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    partition = rows.partition("orders", 0, rows.state([1, 4], [1], 1), now, left_isr=[4], cause="fenced")
    brokers = rows.broker(1, now), rows.broker(4, now, is_fenced=True)
    tables.commit(rows.cluster_row(now), *brokers, partition, rows.source(now))
    tables.put("conditions", rows.spell("broker_down", now, "4", short_id="main-7"), as_of=0)
    tables.put("sampled_conditions", rows.sampled_spell("group_stuck", "1:a group", now))
    with served(tables.directory) as address:
        wait_until(lambda: b"broker down" in ask(address, links.broker("main", 4))[2])
        page = get(address, links.broker("main", 4))
        at_risk = "of its partitions 1 under min ISR"
        assert page.of("title") == [f"\u2716 broker 4 of main: fenced; broker down; {at_risk} - isrwatch"]
        assert "../../../incidents/main-7" in page.links
        page = get(address, links.broker("main", 1))
        assert page.of("title") == [f"\u2716 broker 1 of main: active; {at_risk} - isrwatch"]
        assert "Nothing is wrong with the broker itself" in page.text


def test_readers_of_one_page_share_it_for_a_moment(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(page: PageModel, give_way: Callable[[], None]) -> str:
        made.append(page.path)
        return rendered(page, give_way)

    monkeypatch.setattr(routes, "rendered", counted)
    moments = [moment := micros_now()]
    write_live_cluster(tables, moment)
    with standing(tables, lambda: moments[-1]) as address:
        for passed in (0, 500_000, 1_000_000):
            moments.append(moment + passed)
            for path in (links.cluster("main"), links.incident("main-4"), links.cluster("main")):
                assert ask(address, path)[0] == 200
    assert Counter(made) == {links.cluster("main"): 2, links.incident("main-4"): 3}, (
        "one reads tables: it is not shared"
    )


@contextmanager
def standing(tables: Tables, clock: Callable[[], int]) -> Iterator[str]:
    """Serve what the tables have now, by a clock; give the address."""
    refresher = Refresher(TablesReader(tables.directory), 60.0, "1")
    refresher.refresh_once()
    opened = listen_all("127.0.0.1:0", OPTION)
    with serving_http(WebServer(application(Endpoints(refresher, 3600.0, clock=clock)), opened)):
        yield address_of(opened[0])


def test_what_is_not_there_is_refused_with_what_is(trouble: str) -> None:
    for path, said, choice in (
        (links.cluster("nobody"), "there is no cluster 'nobody'", "main"),
        (links.broker("main", 77), "cluster main has no broker 77", "broker 3"),
        (links.topic("main", "<b>"), "cluster main has no topic '<b>'", "main"),
        (links.group("main", "nobody"), "cluster main has no group 'nobody'", "all groups"),
        (links.incident("main-99"), "there is no incident 'main-99'", "main-4: broker_loss in a test"),
    ):
        page = get(trouble, path, 404)
        assert said in page.text
        assert choice in page.of("a")
    assert "class is 'x'; use one of broker_loss" in get(trouble, "/incidents?class=x", 400).text
    assert "a duration" in get(trouble, "/incidents?since=x", 400).text


def test_an_incident_leads_from_any_of_its_ids_to_the_one_that_stands(trouble: str) -> None:
    for any_id in ("main-3", "loss:e1", "lag:e3"):
        page = get(trouble, links.incident(any_id))  # the client follows
        assert page.of("h1") == ["Incident main-4"]
    body = ask(trouble, links.incident_markdown("main-3"))[2].decode()
    assert body.startswith("# main-4: broker\\_loss in a test\n")
    page = get(trouble, links.incident("main-4"))
    assert "start broker 3 again, and stop no other broker meanwhile" in page.text
    assert "acks=all writers of topic orders fail" in page.text
    assert "../clusters/main/brokers/3" in page.links


def test_an_incident_leads_to_its_begin_as_far_as_history_reaches(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    state = rows.state([1, 4], [1, 4], 1)
    for seconds in (60, 30, 0):
        at = now - seconds * SECOND
        tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.partition("orders", 0, state, at), rows.source(at))
    incidents = [
        rows.incident(f"loss:{number}", "broker_loss", begin, short_id=f"main-{number}", closed_at=end, carried=None)
        for number, begin, end in ((1, now - 3600 * SECOND, now - 3500 * SECOND), (2, now - 20 * SECOND, now))
    ]
    tables.put("incidents", *incidents, as_of=0)
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"main-1" in ask(address, "/incidents")[2])
        assert "the cluster when it began" not in get(address, links.incident("main-1")).of("a"), (
            "before the oldest history"
        )
        page = get(address, links.incident("main-2"))
        assert {"the cluster when it began", "the cluster when it was over"} <= {*page.of("a")}
        assert f"../clusters/main?at={links.moment_text(now - 20 * SECOND)}" in page.links
        early = get(address, links.incident("main-2", now - 40 * SECOND), 404)
        assert {"when main-2 began", "now"} <= {*early.of("a")}
        page = get(address, links.incident("main-2", now - 20 * SECOND))
        assert "prev" not in {relation for _, relation in page.related}, "there is no page of it before"


def test_a_cluster_that_was_renamed_is_walked_through_under_the_name_of_now(tables: Tables) -> None:
    now, names = micros_now(), ("before/it", "before/it", "after", "after")
    for number, name in enumerate(names):
        at, rows, other = now - (40 - 10 * number) * SECOND, Rows(cluster=name), Rows(cluster_id="x", cluster="other")
        state = rows.state([1, 4], [1, 4][: 1 + number % 2], 1, change_number=number)
        tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.partition("orders", 0, state, at), rows.source(at))
        away = other.partition("clicks", 0, state, at + SECOND)
        tables.commit(other.cluster_row(at + SECOND), other.broker(1, at + SECOND), away, other.source(at + SECOND))
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"after" in ask(address, "/")[2])
        path, met = links.cluster("after", now - 10 * SECOND), []
        while True:
            page = get(address, path)
            assert page.of("h1") == ["after"]
            ways = {relation: link for link, relation in page.related}
            if "prev" not in ways:
                break
            path = urljoin(f"http://{address}{path}", ways["prev"]).removeprefix(f"http://{address}")
            met.append(path)
        assert met == [links.cluster("after", now - seconds * SECOND) for seconds in (20, 30, 40)]
        then = get(address, links.topic("before/it", "orders", now - 35 * SECOND))  # the client follows
        assert "after" in then.of("a")
        assert ask(address, links.topic("before/it", "orders", now - SECOND))[0] == 404, "it is not called so any more"


def test_a_clock_of_the_exporter_that_is_behind_moves_no_moment(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    for seconds in (1800, 900, 0):
        at = now - seconds * SECOND
        state = rows.state([1, 4], [1] if seconds == 900 else [1, 4], 1, change_number=seconds)
        brokers = rows.broker(1, at), rows.broker(4, at)
        tables.commit(rows.cluster_row(at), *brokers, rows.partition("orders", 0, state, at), rows.source(at))
    with standing(tables, lambda: now - 600 * SECOND) as address:
        asked = get(address, "/clusters/main?at=15m")
        assert (
            f"this page shows {datetime.fromtimestamp((now - 1500 * SECOND) // SECOND, UTC):%Y-%m-%d %H:%M:%S}"
            in asked.text
        )
        assert "15 min before now" in asked.text
        newest = get(address, links.cluster("main", now))
        assert "10 min ahead of the clock of this exporter" in newest.text
        assert "healthy nothing is wrong" in newest.text
        assert "under-replicated" not in newest.of("td")
        assert get(address, links.cluster("main", now - 600 * SECOND)).of("title")[0].startswith("\u2716 main")


def test_a_page_of_the_past_leads_to_no_incident_that_had_not_begun(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    down = rows.broker(4, now - 60 * SECOND, is_fenced=True)
    lacking = rows.partition("orders", 0, rows.state([1, 4], [1], 1), now - 60 * SECOND)
    tables.commit(rows.cluster_row(now - 60 * SECOND), down, lacking, rows.source(now - 60 * SECOND))
    tables.commit(rows.cluster_row(now), rows.source(now))
    tables.put("conditions", rows.spell("broker_down", now - 60 * SECOND, "4", short_id="main-1"), as_of=0)
    tables.put("incidents", rows.incident("loss:1", "broker_loss", now - 40 * SECOND, short_id="main-1"), as_of=0)
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"main-1" in ask(address, links.cluster("main"))[2])
        for seconds, is_linked in ((50, False), (30, True)):
            at = now - seconds * SECOND
            page = get(address, links.cluster("main", at))
            assert "brokers are fenced" in page.text
            assert (f"../incidents/main-1?at={links.moment_text(at)}" in page.links) is is_linked


def test_a_cluster_is_found_by_its_id_and_by_a_former_name(trouble: str, tables: Tables, rows: Rows) -> None:
    assert get(trouble, links.topic("id-of-main", "orders")).of("h1") == ["Topic orders"]
    now = micros_now()
    tables.commit(rows.cluster_row(now), rows.broker(1, now), rows.source(now))
    before = Rows(cluster="former/name")
    closed = before.incident("lag:e1", "slow_follower", now, short_id="former/name-1", closed_at=now, carried=None)
    tables.put("incidents", closed, as_of=0)
    with served(tables.directory) as address:
        wait_until(lambda: ask(address, links.cluster("former/name"))[0] == 200)
        assert get(address, links.cluster("former/name")).of("h1") == ["main"]
        assert get(address, links.incident("main-1")).of("h1") == ["Incident former/name-1"]
        assert "slow_follower in a test" in get(address, links.incidents(cluster_name="main")).text
        assert "there is no cluster 'other'" in get(address, links.incidents(cluster_name="other"), 404).text


def test_what_cannot_be_read_is_said_and_never_taken_for_nothing(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "tables")
    write_live_cluster(tables, micros_now())
    for name in ("incidents", "groups"):
        for file in (tables.directory / name).glob("*.parquet"):
            file.write_bytes(b"damaged")
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"without incidents" in ask(address, "/")[2])
        assert "without incidents:" in get(address, "/").text
        assert "the incidents cannot be read" in get(address, "/incidents", 503).text
        assert "the incidents cannot be read" in get(address, links.incident("main-4"), 503).text
        wait_until(lambda: b"The samples of groups cannot be read" in ask(address, links.groups("main"))[2])


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


def test_partitions_that_need_every_replica_and_have_it_are_no_trouble(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    partitions = [rows.partition("orders", each, rows.state([1, 4], [1, 4], 1), now) for each in range(3)]
    tables.commit(rows.cluster_row(now), rows.broker(1, now), rows.broker(4, now), *partitions, rows.source(now))
    with served(tables.directory) as address:
        page = get(address, "/")
        assert page.of("title") == ["\u2714 1 of 1 cluster healthy - isrwatch"]
        assert "wrong0000metadata" in "".join(page.of("td"))


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


def test_of_a_cluster_that_is_not_observed_nothing_is_well(tables: Tables) -> None:
    write_live_cluster(tables, micros_now() - 2 * 3600 * SECOND)
    with served(tables.directory) as address:
        pages = crawl(address, "/")
        assert len(pages) > 8
        for path, page in pages.items():
            if "at=" not in path:
                assert "\u2714" not in page.text.replace("is back (\u2714)", ""), path
        assert "Brokers when last observed" in get(address, links.cluster("main")).text
        assert "open when last observed" in get(address, links.incident("main-4")).text


def test_an_id_leads_to_its_incident_as_it_was_typed_and_stays_in_the_past(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    for seconds in (300, 10):
        at = now - seconds * SECOND
        tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.source(at))
    opened = now - 200 * SECOND
    part = {"short_id": "main-1", "merged_into": "loss:b", "closed_at": opened, "carried": None}
    tables.put(
        "incidents",
        rows.incident("loss:a", "broker_loss", opened, **part),
        rows.incident("loss:b", "isr_shrink", opened, short_id="main-2"),
        as_of=1,
    )
    with served(tables.directory, SETTINGS) as address:
        wait_until(lambda: b"main" in ask(address, "/")[2])
        at = now - 100 * SECOND
        for any_id in ("main-1", "main-2", "MAIN-2", "main-2%20", "loss:a"):
            assert get(address, f"/incidents/{any_id}").of("h1") == ["Incident main-2"]
            then = get(address, f"/incidents/{any_id}?at={links.moment_text(at)}")
            assert "now" in {relation for _, relation in then.related}, f"{any_id} at a moment is no page of now"
        assert get(address, "/incidents/main-3", 404).of("h1") == ["Not shown"]
        assert "there is no cluster 'moon'" in get(address, "/incidents?cluster=moon", 404).text
        assert get(address, "/incidents?cluster=ma*").of("h1") == ["Incidents of ma*"]


def test_a_rebuilt_cluster_leads_in_the_past_to_the_one_that_had_its_name(tables: Tables) -> None:
    now = micros_now()
    old, new = Rows(cluster_id="id-of-old"), Rows(cluster_id="id-of-new")
    for rows, seconds, isr in ((old, 300, [1, 4]), (old, 280, [1]), (new, 60, [1, 4]), (new, 30, [1, 4])):
        at = now - seconds * SECOND
        state = rows.state([1, 4], isr, 1, change_number=seconds)
        brokers = rows.broker(1, at), rows.broker(4, at)
        tables.commit(rows.cluster_row(at), *brokers, rows.partition("orders", 0, state, at), rows.source(at))
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: b"main" in ask(address, "/")[2])
        for seconds, cluster_id in ((270, "id-of-old"), (45, "id-of-new")):
            at = now - seconds * SECOND
            fleet = get(address, links.fleet(at))
            assert [each for each in fleet.links if "clusters/main" in each] == [f".{links.cluster('main', at)}"]
            for path in (links.cluster("main", at), links.broker("main", 1, at), links.topic("main", "orders", at)):
                assert get(address, path).of("h1"), path
            assert cluster_id in get(address, links.cluster("main", at)).of("dd")
        ways = {relation for _, relation in get(address, links.cluster("main", now - 280 * SECOND)).related}
        assert "prev" in ways, "the changes are those of the cluster that is shown"


def test_a_cluster_that_is_not_observed_any_more_is_shown_in_the_past_as_the_fleet_shows_it(tables: Tables) -> None:
    now, gone, other = micros_now(), Rows(cluster_id="id-of-gone", cluster="gone"), Rows()
    for rows, seconds in ((gone, 900), (gone, 600), (other, 590), (other, 5)):
        at = now - seconds * SECOND
        state = rows.state([1, 4], [1, 4], 1, change_number=seconds)
        tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.partition("orders", 0, state, at), rows.source(at))
    with served(tables.directory, SETTINGS) as address:
        wait_until(lambda: b"gone" in ask(address, "/")[2])
        at = now - 300 * SECOND
        assert f".{links.cluster('gone', at)}" in get(address, links.fleet(at)).links
        page = get(address, links.cluster("gone", at))
        assert page.of("title") == ["? gone: unknown: its data is too old to say anything about now - isrwatch"]
        assert "data age5 min" in page.text
        assert {relation for _, relation in page.related} >= {"prev", "now"}
        refused = get(address, links.cluster("gone", now + 60 * SECOND), 404)
        assert "nothing is recorded of" in refused.text
