"""Paths of pages: any name comes back from its path as it was, and no browser or proxy takes it for something else."""

from __future__ import annotations

from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporters.answers import links
from exporters.answers.links import PageKind, Target, target_of

ODD = (
    "",
    ".",
    "..",
    "~",
    "~.",
    "a/b",
    "a%2Fb",
    "x/metrics",
    "topics",
    "?at=now",
    "#",
    "a.md",
    "\x00",
    "\u202e",
    ":",
    " ",
)
ANY = st.one_of(st.sampled_from(ODD), st.text(st.characters(codec=None)))
HOST = "http://127.0.0.1:1/behind/a/proxy"


def sent(path: str) -> str:
    """Return the path that a browser sends for a link."""
    return urlsplit(path).path


@given(ANY, ANY)
@example("..", "..")
@example("~x", "~")
def test_any_name_comes_back_from_its_path(cluster: str, name: str) -> None:
    assert target_of(sent(links.cluster(cluster))) == Target(PageKind.CLUSTER, cluster)
    assert target_of(sent(links.cluster(cluster, at=7))) == Target(PageKind.CLUSTER, cluster)
    assert target_of(sent(links.topic(cluster, name))) == Target(PageKind.TOPIC, cluster, name)
    assert target_of(sent(links.groups(cluster))) == Target(PageKind.GROUPS, cluster)
    assert target_of(sent(links.broker(cluster, 3))) == Target(PageKind.BROKER, cluster, "3")
    assert target_of(sent(links.incident_markdown(name))) == Target(PageKind.INCIDENT_MARKDOWN, "", name)
    of_group = urlsplit(links.group(cluster, name))
    assert target_of(of_group.path) == Target(PageKind.GROUPS, cluster)
    assert parse_qs(of_group.query, keep_blank_values=True, errors="surrogatepass") == {"name": [name]}


@given(ANY)
def test_any_id_comes_back_from_the_path_of_its_incident(name: str) -> None:
    assert target_of(sent(links.incident(name))) == Target(PageKind.INCIDENT, "", name)


@given(ANY, ANY)
@example("..", ".")
@example("", "")
@example("a//b", "//host/")
def test_a_link_leads_below_the_proxy_from_any_page(cluster: str, name: str) -> None:
    paths = [
        links.fleet(),
        links.cluster(cluster),
        links.topic(cluster, name),
        links.group(cluster, name),
        links.incidents(cluster_name=name),
        links.incident(name),
    ]
    for page in paths:
        for path in paths:
            assert urljoin(HOST + page, links.relative(path, page)) == HOST + path


@pytest.mark.parametrize("path", [
    "", "/clusters", "/clusters/", "/clusters/a/metrics", "/clusters/a/b", "/clusters/a/brokers/x", "/incidents/",
    "/clusters/a/brokers/", "/clusters/%ff", "/incidents/.md", "/incidents/a/b", "/metrics", "//",
    "/clusters/a/topics/b/c",
])  # fmt: skip
def test_other_paths_are_no_pages(path: str) -> None:
    assert target_of(path) is None


def test_a_moment_and_filters_are_parameters() -> None:
    at = 1_772_361_000_000_000
    assert links.fleet(at) == "/?at=2026-03-01T10:30:00Z"
    assert links.group("a", "b", at) == "/clusters/a/groups?name=b&at=2026-03-01T10:30:00Z"
    assert links.incidents(kind="broker_loss", since="7d") == "/incidents?class=broker_loss&since=7d"
