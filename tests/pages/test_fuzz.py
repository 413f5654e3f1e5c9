"""Names and parameters of every kind through pages, API and links: nothing is executed, and nothing breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.answers import links
from exporters.read_model.reader import micros_now
from exporters.web.api import ENDPOINTS
from exporters.web.runbook_commands import Installations
from streaming.settings import ClusterSettings
from tests.examples import DRAWN, examples
from tests.exporters.conftest import SECOND, Rows, Tables
from tests.exporters.web.test_pages import parsed
from tests.pages.direct import Direct, DirectExporter
from tests.test_names import ODD

NAMES = [name[:300] for name in ODD] + [
    "..",
    ".",
    "~",
    "~x",
    "a/b",
    "a%2Fb",
    "x.md",
    "metrics",
    "brokers",
    "$(id)",
    "a?at=1",
]
CLUSTERS = [name for name in NAMES if name]
HTML = "text/html; charset=utf-8"


def write(tables: Tables) -> None:
    """Write clusters that are called so, each with topics, groups, brokers and an incident of such names."""
    now, changes, groups, offsets, incidents, spells = micros_now(), [], [], [], [], []  # type: ignore[var-annotated]
    for number, name in enumerate(CLUSTERS):
        rows = Rows(cluster_id=f"id-{number}", cluster=name, start=now - 30 * SECOND)
        odd = NAMES[number % len(NAMES)]
        changes += [rows.cluster_row(now), rows.source(now), rows.broker(1, now, rack=odd, host=odd)]
        for topic in {odd, "orders", NAMES[-number - 1]}:
            if topic:
                changes.append(rows.partition(topic, 0, rows.state([1, 2, 3], [1], 1), now))
        common = {**rows.owner, "collected_at": now, "source": "samples:collector-1"}
        group = {"group_protocol": "classic", "group_state": "Stable", "coordinator": 1, "members": 1}
        groups += [{**common, "group": each, **group} for each in {odd, ""}]
        topic = odd or "orders"
        offset = {"topic_id": f"id-of-{topic}", "topic": topic, "partition": 0, "records_lost": 0}
        offsets.append({**common, "group": odd, **offset, "committed_offset": 1, "lag": 2})
        incidents.append(
            rows.incident(
                f"loss:{number}",
                "broker_loss",
                now - 20 * SECOND,
                short_id=f"{name}-{number}",
                summary=f"{odd} lost",
                consequence=odd,
                next_step=f"start {odd}",
                suspects=[{"broker": 1, "score": 0.5}],
            )
        )
        spells.append(rows.spell("under_min_isr", now - 20 * SECOND, short_id=f"{name}-{number}", topics=[odd]))
    version = tables.commit(*changes)
    tables.project(changes, version)
    for name, rows_of in (("groups", groups), ("group_offsets", offsets)):
        tables.put(name, *rows_of)
    tables.put("incidents", *incidents, as_of=version)
    tables.put("conditions", *spells, as_of=version)


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectExporter]:
    tables = Tables(tmp_path_factory.mktemp("odd") / "tables")
    write(tables)
    clusters = [ClusterSettings(name=name, platform="strimzi", bootstrap_servers="b:9092") for name in CLUSTERS[::2]]
    known = Installations({each.name: each for each in clusters}, "https://isrwatch.example", "https://alerts.example")
    with DirectExporter(tables.directory, known) as exporter:
        yield exporter


def checked(response: Direct, target: str) -> Direct:
    """Check what holds of every response."""
    assert response.status < 500 or response.status == 503, (target, response.text[:300])
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert response.headers["x-content-type-options"] == "nosniff"
    kind = response.headers.get("content-type", "")
    if kind == HTML and response.body:
        page = parsed(response.body) if "<main" in response.text else None
        assert "<script" not in response.text.lower()
        assert not re.search(
            r"(?i)(href|src|action)=.?(javascript|data|https?://(?!alerts\.example/|isrwatch\.example/))", response.text
        )
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2028]", response.text), target
        assert page is None or page.links
    elif kind.startswith("application/json") and response.body:
        json.loads(response.body)
    return response


STATUSES: dict[str, int] = {}
"""Of the links that were followed already."""


def led_to(exporter: DirectExporter, target: str) -> int:
    """Follow a link, once, and return the status."""
    if target not in STATUSES:
        STATUSES[target] = checked(exporter.ask(target), target).status
    return STATUSES[target]


# Names.


def paths_of(name: str, number: int) -> Iterator[tuple[str, str]]:
    """Yield each page of a cluster with odd names, and a name that is on it."""
    odd, other = NAMES[number % len(NAMES)], NAMES[-number - 1]
    yield links.cluster(name), name
    yield links.broker(name, 1), name
    yield links.groups(name), odd
    yield links.group(name, odd), odd
    yield links.group(name, ""), name
    yield links.incident(f"{name}-{number}"), f"{name}-{number}"
    yield links.incidents(cluster_name=name), name
    for topic in {odd, other} - {""}:
        yield links.topic(name, topic), topic


@pytest.mark.parametrize("number", range(0, len(CLUSTERS), 1 if DRAWN == "long" else 15))
def test_every_page_of_every_name_is_there_and_its_links_lead_to_pages(number: int, exporter: DirectExporter) -> None:
    for path, _ in paths_of(CLUSTERS[number], number):
        response = checked(exporter.ask(path), path)
        assert response.status == 200, path
        for link in parsed(response.body).links:
            target = urljoin(f"http://127.0.0.1{path}", link)
            if urlsplit(target).netloc == "127.0.0.1" and not link.startswith("#"):
                led = target.removeprefix("http://127.0.0.1")
                assert led_to(exporter, led) in {200, 307}, (path, led)


def test_a_post_mortem_is_text_and_has_no_markup_of_a_name(exporter: DirectExporter) -> None:
    for number, name in enumerate(CLUSTERS):
        path = links.incident_markdown(f"{name}-{number}")
        response = checked(exporter.ask(path), path)
        assert (response.status, response.headers["content-type"].partition(";")[0]) == (200, "text/markdown")
        assert "<script>" not in re.sub(r"`[^`]*`|```.*?```", "", response.text, flags=re.DOTALL).replace("\\<", "")


# Requests that nobody makes by accident.


WORDS = ["clusters", "incidents", "topics", "brokers", "groups", "api", "v1", "runbook", "metrics", "answers", "-"]
STRANGE = ("", ".", "..", "%2e%2e", "%2F", "%00", "%ff%fe", "%", "%zz", "~", "*", ";", "//", "1", "9" * 30, "-1")
SEGMENTS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(STRANGE),
    st.sampled_from([quote(name, safe="") for name in NAMES]),
    st.text(max_size=20).map(lambda text: quote(text, safe="", errors="surrogatepass")),
)
VALUES = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(
        ["1s", "15m", "-1", "0", "1e9", "9" * 40, "2026-11-28T03:12:05Z", "2026-13-40", "NaN", "now", "yesterday"]
    ),
    st.text(max_size=30),
)
KEYS = st.one_of(
    st.sampled_from(
        ["at", "cluster", "class", "since", "until", "name", "limit", "cursor", "state", "broker", "topic"]
    ),
    st.sampled_from(["group", "event", "name[]", "incident", "all", "", "format", "x"]),
)
QUERIES = st.lists(st.tuples(KEYS, VALUES), max_size=4).map(lambda pairs: urlencode(pairs, errors="surrogatepass"))
RESOURCES = [
    *(endpoint.path.replace("{incident}", quote(f"{name}-{number}", safe=""))
      for endpoint in ENDPOINTS for number, name in enumerate(CLUSTERS if endpoint.of_path else CLUSTERS[:1])),
    "/metrics",
]  # fmt: skip
TARGETS = st.one_of(
    st.lists(SEGMENTS, max_size=7).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from([path for number, name in enumerate(CLUSTERS) for path, _ in paths_of(name, number)]),
    st.sampled_from([*RESOURCES, "/runbook/IsrwatchBlind"]),
)


@settings(max_examples=examples(30))
@given(path=TARGETS, query=QUERIES, method=st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]))
@example(path="/clusters/a%2Fb", query="at=9" * 20, method="GET")
@example(path="/incidents/" + "9" * 5_000, query="", method="GET")
@example(path="/%ff", query="%ff=%fe", method="GET")
def test_any_request_is_answered_and_nothing_of_it_becomes_markup(
    path: str, query: str, method: str, exporter: DirectExporter
) -> None:
    target = f"{path}?{query}" if query else path
    try:
        target.encode("ascii")
    except UnicodeEncodeError:
        return
    checked(exporter.ask(target, method), target)


@settings(max_examples=examples(15))
@given(name=st.text(max_size=60), kind=st.sampled_from(["cluster", "topic", "group", "incident"]))
def test_a_name_that_nothing_has_is_refused_in_words_and_with_links_that_work(
    name: str, kind: str, exporter: DirectExporter
) -> None:
    made: dict[str, Any] = {
        "cluster": lambda: links.cluster(name + "?"),
        "topic": lambda: links.topic(CLUSTERS[0], name + "?"),
        "group": lambda: links.group(CLUSTERS[0], name + "?"),
        "incident": lambda: links.incident(name + "?"),
    }
    path = made[kind]()
    response = checked(exporter.ask(path), path)
    assert response.status in {404, 400}
    for link in parsed(response.body).links:
        led = urljoin(f"http://127.0.0.1{path}", link).removeprefix("http://127.0.0.1")
        if led.startswith("/"):
            assert led_to(exporter, led) < 400 or link.startswith("#"), led


# The JSON API.


def test_the_api_has_every_name_as_it_is(exporter: DirectExporter) -> None:
    clusters = json.loads(exporter.ask("/api/v1/clusters?limit=1000").body)["clusters"]
    assert {row["cluster"] for row in clusters} == {*CLUSTERS}
    for number, name in enumerate(CLUSTERS):
        query = urlencode({"cluster": re.sub(r"[*?\[\]|\\!]", "?", name), "limit": 1000})
        response = checked(exporter.ask(f"/api/v1/partitions?{query}"), name)
        odd = NAMES[number % len(NAMES)]
        if response.status == 200 and odd:
            assert odd in {row["topic"] for row in json.loads(response.body)["partitions"] if row["cluster"] == name}


def test_an_incident_of_any_name_is_found_over_the_api_with_what_happened_in_it(exporter: DirectExporter) -> None:
    for number, name in enumerate(CLUSTERS):
        path = f"/api/v1/incidents/{quote(f'{name}-{number}', safe='')}"
        found = checked(exporter.ask(path), path)
        assert found.status == 200, (name, found.body)
        assert (found.status, json.loads(found.body)["incident"]["cluster"]) == (200, name)
        changes = checked(exporter.ask(f"{path}/changes?limit=1"), path)
        assert (changes.status, json.loads(changes.body)["incident"]) == (200, f"{name}-{number}")
