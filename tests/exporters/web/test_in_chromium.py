"""The pages in a real Chromium, without a mouse and on paper: keys reach everything, and it is seen where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from exporters.answers import links
from exporters.web.runbook import SETUP
from tests.pictures.browser import Browser, browser
from tests.pictures.pages import BEGIN, SCENES, pages_of, play, served
from tests.pictures.scene import CLUSTER, SECOND

pytestmark = pytest.mark.long
_CONTROLS = "a[href]:not([tabindex='-1']), button, input:not([type=hidden]), select, [tabindex='0']"
_NUMBERED = f"[...document.querySelectorAll({_CONTROLS!r})].map((each, at) => each.dataset.at = at).length"
_FOCUSED = """(() => {
  const each = document.activeElement, style = getComputedStyle(each), box = each.getClientRects()[0];
  const at = box && document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return {
    at: each.dataset.at ?? null, name: each.outerHTML.slice(0, 120), path: each.getAttribute("href"),
    isSeen: Boolean(at) && (each.contains(at) || at.contains(each)), words: each.textContent.trim(),
    ring: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
  };
})()"""
_MARKED = """[...document.querySelectorAll("h1, main h2, main h3, main p, tr, pre, dd, main li, svg")]
  .filter((each) => !each.closest(".noprint, form") && each.getClientRects().length)
  .map((each) => (each.dataset.row = 1)).length"""
_COLOURS = "(() => { const of = getComputedStyle(document.body); return [of.backgroundColor, of.color] })()"
_PAPER = 718
"""Width of A4 between the margins of Chromium, in pixels."""


def _visible(what: str) -> str:
    return f"[...document.querySelectorAll({what!r})].filter((each) => each.getClientRects().length).length"


class Site(NamedTuple):
    """A served scene, its pages by name, and the tab."""

    address: str
    pages: dict[str, str]
    tab: Browser

    def open(self, name: str) -> None:
        self.tab.open(f"http://{self.address}{self.pages[name]}")

    def path(self) -> str:
        return urlsplit(self.tab.value_of("location.href")).path

    def tabbed_to(self, what: str) -> None:
        """Press Tab until the focus is on what a selector finds, from where it is."""
        there = self.tab.value_of(f"document.querySelectorAll({what!r}).length")
        assert there, f"{self.path()} has no {what}"
        for _ in range(500):
            self.tab.press("Tab")
            if self.tab.value_of(f"document.activeElement.matches({what!r})"):
                return
        raise AssertionError(f"no Tab leads to {what} on {self.path()}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    tables, scene = tmp_path_factory.mktemp("site") / "tables", SCENES["trouble"]
    play(tables, scene.shown_at)
    with served(tables, BEGIN + scene.shown_at * SECOND) as address, browser() as tab:
        pages = {
            **pages_of("trouble", tables),
            "runbook": links.runbook("broker_loss", {}),
            "setup": links.runbook(SETUP, {}),
        }
        pages["refusal"] = links.cluster("nobody")
        pages["past incident"] = links.incident(Path(urlsplit(pages["incident"]).path).name, BEGIN + 800 * SECOND)
        yield Site(address, pages, tab)


def test_tab_reaches_every_link_and_control_in_order_and_shows_where_it_is(site: Site) -> None:
    for name in site.pages:
        site.open(name)
        count = site.tab.value_of(_NUMBERED)
        met: list[dict[str, Any]] = []
        for _ in range(count):
            site.tab.press("Tab")
            met.append(site.tab.value_of(_FOCUSED))
        assert [each["at"] for each in met] == [str(at) for at in range(count)], name
        assert [each["name"] for each in met if not each["isSeen"] or each["ring"] < 2] == [], name
        assert met[0]["words"] == "Skip to the content", name
        site.tab.press("Tab", shift=True)
        assert site.tab.value_of(_FOCUSED)["at"] == str(count - 2), "and back"


def test_the_content_is_skipped_to(site: Site) -> None:
    for name in site.pages:
        site.open(name)
        site.tab.press("Tab")
        site.tab.press("Enter")
        assert site.tab.value_of("document.activeElement.id") == "main", name
        site.tab.press("Tab")
        assert not site.tab.value_of("Boolean(document.activeElement.closest('nav'))"), name


def test_from_the_fleet_to_an_incident_through_its_night_and_back_without_a_mouse(site: Site) -> None:
    site.open("fleet")
    site.tabbed_to("td a[href*='incidents/']")
    site.tab.press("Enter", leads_away=True)
    incident = site.path()
    assert incident.startswith("/incidents/")
    site.tabbed_to("a[rel=bookmark]")
    site.tab.press("Enter", leads_away=True)
    assert site.path() == links.cluster(CLUSTER)
    began = site.tab.value_of("location.search")
    site.tabbed_to("a[rel=next]")
    site.tab.press("Enter", leads_away=True)
    assert site.tab.value_of("location.search") > began
    site.tabbed_to("a[rel=now]")
    site.tab.press("Enter", leads_away=True)
    assert site.tab.value_of("location.search") == ""
    site.tabbed_to("#at")
    site.tab.press("Enter", leads_away=True)
    assert "at=" in site.tab.value_of("location.search"), "the form sends the moment that it is filled in with"
    site.tabbed_to("nav a[href*='incidents']")
    site.tab.press("Enter", leads_away=True)
    site.tabbed_to("th a")
    site.tab.press("Enter", leads_away=True)
    site.tabbed_to("nav li:first-child a")
    site.tab.press("Enter", leads_away=True)
    assert site.path() == links.fleet()


def test_a_printed_page_is_whole_light_and_without_controls(site: Site) -> None:
    site.tab.call("Emulation.setDeviceMetricsOverride", width=_PAPER, height=1000, deviceScaleFactor=1, mobile=False)
    try:
        for name in site.pages:
            site.open(name)
            site.tab.prefer("light")
            shown = site.tab.value_of(_MARKED)
            site.tab.prefer("dark", prints=True)
            assert site.tab.value_of(_visible("[data-row]")) == shown, name
            assert site.tab.value_of(_COLOURS) == ["rgb(255, 255, 255)", "rgb(28, 33, 38)"], name
            assert site.tab.value_of(_visible("form, nav, button, input, .skip, [rel=prev], [rel=now]")) == 0, name
            assert site.tab.value_of("document.documentElement.scrollWidth") <= _PAPER, f"{name} is cut off"
            assert site.tab.printed().startswith(b"%PDF"), name
            if "runbook" not in site.pages[name]:
                words = site.tab.value_of("document.body.innerText")
                assert f"Its address: {site.pages[name]}" in words, name
        site.open("incident")
        silence = site.tab.value_of("getComputedStyle(document.querySelector('a[rel=noreferrer]'), '::after').content")
        assert "alertmanager:9093" in silence, "where a link leads is printed"
    finally:
        site.tab.prefer("light")
        site.tab.call("Emulation.clearDeviceMetricsOverride")
