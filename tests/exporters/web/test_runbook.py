"""The runbook: its text, the values that it is filled in with, and its pages over real HTTP."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
import typer

from exporters.web.runbook import LABELS, PLACEHOLDER, SETUP, filled, for_shell, known_values, runbook, runbook_link
from exporters.web.runbook_page import response_of
from exporters.web.server import serving
from streaming.commands import load
from streaming.contracts.alerts import ALERTS, Pack, ThresholdUnit
from streaming.contracts.conditions import HOUR, RULES, WINDOW
from streaming.contracts.events import IncidentClass
from streaming.contracts.identifiers import SECOND
from streaming.contracts.standing import SLOT
from streaming.settings import ExportSettings
from tests.exporters.web.test_app import ask

BOOK = runbook()
PACK = [name for name, alert in ALERTS.items() if alert.pack is Pack.ALERTS]
PLATFORMS = ("Bare metal", "Strimzi", "MSK")
FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KAFKAS_TOOLS = {
    f"kafka-{name}.sh"
    for name in (
        *("acls", "cluster", "configs", "consumer-groups", "dump-log", "features", "leader-election", "log-dirs"),
        *("metadata-quorum", "reassign-partitions", "topics", "transactions"),
    )
}
HARMFUL = ("a b", "a'b", "$(touch x)", "`id`; rm -rf /", "<script>alert(1)</script>", "\\", "a&b=c", "é")


def blocks(section: str) -> list[str]:
    return FENCE.findall(section)


# The text.


def test_the_alerts_that_are_on_from_the_start_stand_first() -> None:
    assert list(BOOK.sections)[: len(PACK)] == PACK


@pytest.mark.parametrize("name", BOOK.sections)
def test_a_section_says_what_it_means_what_to_see_what_to_do_and_when_it_is_over(name: str) -> None:
    section = BOOK.sections[name]
    parts = re.findall(r"^\*\*(Meaning|Impact|See, do|See|Do|Over when)\b", section, re.MULTILINE)
    assert parts in (["Meaning", "Impact", "See", "Do", "Over when"], ["Meaning", "Impact", "See, do", "Over when"])
    see, do = section.split("**See")[1].split("**Do.**") if "**Do.**" in section else (section, "")
    assert len(blocks(see)) == 1, "one block to copy"
    assert re.match(r"^(isrwatch|curl|amtool) ", blocks(see)[0])
    if name in PACK and "on every" not in " ".join(do.split()):
        titles = re.findall(r"^\*(.+?)\*", do, re.MULTILINE)
        assert [each for each in PLATFORMS if each not in ", ".join(titles)] == []


def test_links_lead_to_sections_and_kafkas_tools_exist() -> None:
    anchors = {name.lower() for name in BOOK.sections}
    for section in BOOK.sections.values():
        assert set(re.findall(r"\]\(#?([^)]*)\)", section)) <= anchors
        assert set(re.findall(r"\bkafka-[a-z-]+\.sh", section)) <= KAFKAS_TOOLS


def test_every_alert_and_every_class_of_incidents_has_a_section_and_no_section_is_of_nothing() -> None:
    assert set(BOOK.sections) == {alert.section for alert in ALERTS.values()}
    shared = {name: section for name, section in BOOK.shared.items() if name in ALERTS}
    assert set(BOOK.shared) == shared.keys() | {kind.value for kind in IncidentClass}
    for name, section in shared.items():
        assert name in BOOK.sections[section] or name == "IsrwatchAvailabilityBurnsFast"


COMMANDS = sorted({line for section in BOOK.sections.values() for block in blocks(section)
                   for line in re.findall(r"^isrwatch ([^;|#\n]+)", block, re.MULTILINE)})  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_isrwatch_can_be_run(line: str) -> None:
    name, *arguments = shlex.split(PLACEHOLDER.sub("7", line))
    command = load(name)
    assert command is not None
    with suppress(typer.Exit), command.make_context(name, arguments) as context:  # --help exits
        assert context.command is command


# Numbers of a rule: a section says no other one.


WORDS = {"a": 1, "an": 1, "half an": 0.5, "two": 2, "six": 6}
SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
TIME = re.compile(r"(half an|an?|two|six|\d+)[ -](second|minute|hour|day)s?\b")
MORE: dict[str, set[float]] = {
    "IsrwatchBrokerDown": {HOUR / SECOND},
    "IsrwatchIsrFlapping": {SLOT / SECOND, HOUR / SECOND},
    "IsrwatchDiskFillsUp": {2 * 3_600, 86_400},
    "IsrwatchQuorumVoterBehind": {10},
    "IsrwatchCertificateExpires": {3 * 86_400},
    "IsrwatchGroupLagGrows": {60},
    "IsrwatchGroupStuck": {900},
    "IsrwatchGroupLosesRecords": {900},
}
"""What a rule counts besides the times of the catalogue."""
UNSAID = {"IsrwatchCertificateExpires", "IsrwatchLogCleanerDead"}
"""Sections that do not say for how long it lasts: nobody asks."""


@pytest.mark.parametrize("name", [name for name in ALERTS if name == ALERTS[name].section])
def test_a_section_names_the_times_of_its_rule_and_no_other_ones(name: str) -> None:
    alert = ALERTS[name]
    meaning = " ".join(BOOK.sections[name].split("**Meaning.**")[1].split("**Impact.**")[0].split())
    said = {float(WORDS.get(number) or number) * SECONDS[unit] for number, unit in TIME.findall(meaning)}
    rules = [RULES[condition] for condition in alert.conditions if condition in RULES]
    times = {rule.lasting / SECOND for rule in rules} | MORE.get(name, set())
    if any(rule.adding_up for rule in rules):
        times |= {WINDOW / SECOND, *((rule.adding_up or 0) / SECOND for rule in rules)}
    if alert.unit is ThresholdUnit.DURATION:
        times.add(alert.threshold or 0)
    lasts = {alert.lasting} if alert.lasting else set()
    assert said <= times | lasts
    assert name in UNSAID or lasts <= said


def test_every_block_is_valid_shell_filled_in_or_not() -> None:
    every = "\n".join(block for section in (BOOK.setup, *BOOK.sections.values()) for block in blocks(section))
    for value in ("", *HARMFUL):
        text = filled(every, for_shell(known_values(dict.fromkeys(LABELS, value))))
        checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), value


def test_the_functions_for_strimzi_find_the_pod_of_a_broker_and_run_tools_in_a_running_one() -> None:
    (strimzi,) = (block for block in blocks(BOOK.setup) if "pod()" in block)
    kubectl = 'kubectl() { [ "$3" = get ] && printf "pod/c-broker-11\\npod/c-broker-1\\n" || printf "%s\\n" "$*"; }\n'
    text = (
        kubectl
        + filled(strimzi, for_shell({"resource": "c", "namespace": "kafka"}))
        + "pod 1; run kafka-topics.sh --list"
    )
    said = subprocess.run(["bash", "-euc", text], capture_output=True, text=True, check=True).stdout
    assert said == "pod/c-broker-1\n-n kafka exec -i pod/c-broker-11 -c kafka -- bin/kafka-topics.sh --list\n"


# What is filled in.


@pytest.mark.parametrize("value", HARMFUL)
def test_a_copied_command_has_the_value_as_one_word_and_runs_none_of_it(value: str, tmp_path: Path) -> None:
    command = filled("printf %s {topic}", for_shell(known_values({"topic": value})))
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (said.stdout, list(tmp_path.iterdir())) == (value, [])


@pytest.mark.parametrize(
    ("label", "value"),
    [("broker", "1;id"), ("broker", "٣"), ("topic", "a\nid"), ("group", "-x"), ("cluster", ""), ("group", "x" * 256),
     ("topic", "a\u202eb"), ("severity", "critical")],
)  # fmt: skip
def test_a_value_that_no_cluster_has_stays_a_placeholder(label: str, value: str) -> None:
    assert known_values({label: value}) == {}


def test_a_link_is_absolute_and_there_is_none_without_an_address() -> None:
    assert runbook_link("", "IsrwatchBlind", {"cluster": "cluster"}) is None
    assert runbook_link("https://x/kafka/", "IsrwatchBlind") == "https://x/kafka/runbook/IsrwatchBlind"
    assert runbook_link("https://x", "A", {"cluster": "cluster", "broker": "subject"}) == (
        "https://x/runbook/A?{{ if $labels.cluster }}cluster={{ $labels.cluster | urlquery }}"
        '&broker={{ $labels.subject | reReplaceAll ":.*" "" | urlquery }}{{ end }}'
    )


# The pages.


class _Elements(HTMLParser):
    """Reads which elements, attributes and links a page has, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ways: list[str] = []
        self.is_nav = False
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.is_nav |= tag == "nav"
        links = self.ways if self.is_nav else self.links
        if ("class", "skip") in attrs:
            return
        links += [str(value) for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        self.is_nav &= tag != "nav"

    def handle_data(self, data: str) -> None:
        self.text += data


ELEMENTS = {
    *("html", "meta", "title", "style", "h1", "h2", "p", "a", "pre", "code", "strong", "em", "b", "mark"),
    *("nav", "main", "ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("tables"), ExportSettings(listen="127.0.0.1:0")) as address:
        yield address


def test_every_alert_is_listed_and_has_its_page_before_any_table_is_read(address: str) -> None:
    status, headers, body = ask(address, "/runbook")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    links = _Elements(body).links
    assert links == [f"runbook/{name}" for name in BOOK.sections]
    for link in links:
        status, headers, body = ask(address, f"/{link}?cluster=prod&broker=3")
        page = _Elements(body)
        assert (status, page.elements - ELEMENTS) == (200, set())
        assert page.attributes <= {
            "lang",
            "charset",
            "name",
            "content",
            "href",
            "id",
            "class",
            "aria-label",
            "tabindex",
        }
        assert page.ways == [
            *("../", "../clusters/prod", "../clusters/prod/brokers/3", "../incidents?cluster=prod"),
            "../runbook?cluster=prod&broker=3",
        ]
        assert {each.partition("?")[2] for each in page.links if each != "#setup"} <= {"cluster=prod&broker=3"}
        assert "{cluster}" not in page.text
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")


def test_every_page_leads_back_to_what_it_is_about(address: str) -> None:
    for path, ways in (
        ("/runbook", ["./", "./incidents", "./runbook"]),
        ("/runbook/no-such?cluster=a/b", ["../", "../clusters/a%2Fb", "../incidents?cluster=a%2Fb"]),
        ("/runbook/IsrwatchGroupLagGrows?cluster=c&group=g", ["../", "../clusters/c", "../clusters/c/groups?name=g"]),
        ("/runbook/IsrwatchUncleanElection?topic=t&broker=x", ["../", "../incidents", "../runbook?topic=t"]),
    ):
        assert _Elements(ask(address, path)[2]).ways[: len(ways)] == ways


def test_a_page_is_filled_in_and_what_is_unknown_is_marked(address: str) -> None:
    body = ask(address, "/runbook/IsrwatchBrokerDown?cluster=prod%20eu&broker=3")[2].decode()
    assert "<p>cluster <b>prod eu</b>, broker <b>3</b></p>" in body
    assert "isrwatch events --cluster 'prod eu' --broker 3 --since 2h" in unescape(body)
    assert f"<h2 id=setup>{SETUP}</h2>" in body
    assert "<mark>{topic}</mark>" in ask(address, "/runbook/IsrwatchUncleanElection")[2].decode()


@pytest.mark.parametrize("value", ["<script>alert(1)<script>", '"><b id=x>', "&lt;i&gt;", "[a](javascript:x) **b**"])
def test_nothing_of_a_link_becomes_markup(value: str, address: str) -> None:
    def page(name: str, given: str) -> _Elements:
        return _Elements(ask(address, f"/runbook/{name}?cluster={quote(given)}&topic={quote(given)}&group=g")[2])

    for name in ("IsrwatchUncleanElection", "IsrwatchGroupLagGrows"):
        given, plain = page(name, value), page(name, "x")
        assert (given.elements - {"mark"}, given.attributes) == (plain.elements - {"mark"}, plain.attributes)
        assert len(given.links) == len(plain.links)
        assert value in given.text
    unknown = page(quote(value), value)
    assert unknown.elements <= ELEMENTS
    assert f"The runbook has no alert {value}." in unknown.text


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("IsrwatchBrokerDwn", "IsrwatchBrokerDown"), ("isrwatchblind", "IsrwatchBlind"), ("x" * 5_000, "")],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, nearest: str, address: str) -> None:
    status, _, body = ask(address, f"/runbook/{name}?cluster=prod")
    assert status == 404
    first, *_ = _Elements(body).links
    assert first.startswith(nearest)
    assert first.endswith("?cluster=prod")
    assert ask(address, f"/runbook/{first}")[0] == 200


def test_a_name_that_shares_a_section_leads_there(address: str) -> None:
    for name in ("IsrwatchThrottleLeft", "broker_loss"):
        answer = response_of(BOOK, name, {"cluster": "a"})
        assert (answer.status_code, answer.headers["location"]) == (307, f"{BOOK.shared[name]}?cluster=a")
        assert ask(address, f"/runbook/{answer.headers['location']}")[0] == 200
