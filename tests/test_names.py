"""A name may hold anything: every output that people and programs read keeps it a name."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import promql_parser
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from rich.text import Text
from typer.testing import CliRunner

from dashboards.promql import of_variable, quoted
from exporters.metrics.exporter_metrics import metrics_path
from exporters.metrics.text import line
from exporters.read_model.times import Clock
from exporters.terminal.output import RowFormat, RowOutput
from exporters.terminal.table_layout import SENTENCE, Field
from exporters.web.command import LogFormat, LogLevel, configure
from exporters.web.runbook import known_values, runbook
from exporters.web.runbook_page import list_page, section_page, unknown_page
from streaming.commands import app
from streaming.escapes import LONGEST, csv_line, json_text, printable, shortened, with_short_words
from streaming.terminal import LogLines, Terminal, print_wrapped
from streaming.web.markup import document, sentence, table
from streaming.web.responses import JsonResponse, error_response, lines_response

ODD = (
    "", "esc\x1b[31mred", "\x1b]0;title\x07bell", "a\nb", "a\r\nb\tc", "\u202egnp.exe", "zero\u200bwidth", "\x85\u2028",
    "\x9b31m", "\x7f\x00", "=1+1", "+1", "-1", "@SUM(A1)", "'quoted", 'a"b&c#d+e%20', "back\\slash", "a`b",
    "{{ .Labels }}", "<script>alert(1)</script>", "[bold red]", ":smile:", "{group}", "a,b;c", "a|b", "[a", "^a.*$",
    "o'brien; rm -rf ~", "\U0001f600", "x" * 32_000, "y z" * 10_000,
)  # fmt: skip
SPECIAL = st.sampled_from("\x1b[\\\"'`\n\r\t,;&#+%=<>{}\u202e\u200b\x85\x07 a")
NAMES = st.one_of(st.sampled_from(ODD), st.text(), st.text(SPECIAL))
ON_THE_WIRE = NAMES.filter(lambda name: not re.search("[\ud800-\udfff]", name))
ANY_TEXT = st.one_of(NAMES, st.text(st.characters(codec=None)))
"""With halves of characters, which an argument of a command may have."""
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
OUR_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def odd_names(test: Callable[..., None]) -> Callable[..., None]:
    """Let a property hold of each name of the list, too."""
    for name in ODD:
        test = example(name)(test)
    return test


def visible(text: str) -> bool:
    """Return whether a text has nothing but printable characters, line ends and our own colours."""
    return all(part.isprintable() for part in OUR_COLOUR.sub("", text).split("\n"))


def printed(name: str, row_format: RowFormat, *, is_terminal: bool, is_stream: bool = False) -> str:
    file = io.StringIO()
    console = Terminal(
        file=file, width=160, force_terminal=is_terminal, color_system="standard" if is_terminal else None
    )
    fields = [Field("group", lambda row: row["group"]), Field("lag", lambda row: str(row["lag"]), is_number=True),
              Field("why", lambda row: row["group"], wraps=SENTENCE)]  # fmt: skip
    rows = [{"group": name, "lag": 7, "members": [name, "b"]}, {"group": "plain", "lag": -1, "members": []}]
    RowOutput(console, row_format, Clock(0), is_stream).print(
        rows, fields, ["group", "lag", "members"], lambda _: "red"
    )
    return file.getvalue()


@odd_names
@given(ANY_TEXT)
def test_people_see_a_name_on_its_own_line_and_nothing_acts_on_their_terminal(name: str) -> None:
    for is_terminal in (True, False):
        for row_format in RowFormat:
            if is_terminal or row_format is not RowFormat.CSV:
                assert visible(printed(name, row_format, is_terminal=is_terminal))
    assert printed(name, RowFormat.TABLE, is_terminal=False, is_stream=True).count("\n") == 2
    heading, of_name, other = printed(name, RowFormat.TABLE, is_terminal=False).splitlines()
    assert (heading.split()[:2], other.split()[:2]) == (["group", "lag"], ["plain", "-1"])
    assert of_name.startswith(shortened(printable(name)))


@odd_names
@given(ANY_TEXT)
def test_a_sentence_stays_one_line_with_its_colours(name: str) -> None:
    for is_terminal in (True, False):
        file = io.StringIO()
        console = Terminal(file=file, width=10**6, force_terminal=is_terminal, color_system="standard")
        print_wrapped(console, Text.assemble(("unknown ", "red"), name, ("; do this", "bold")))
        print_wrapped(console, f"unknown {name}")
        console.print(f"[red]{name}", soft_wrap=True)
        console.row(name, "red")
        said = file.getvalue()
        assert visible(said)
        assert said.count("\n") == 4 + Text(f"[red]{name}").plain.count("\n"), "rich breaks where a text does"


def test_a_long_name_is_shortened_with_a_mark_and_an_ordinary_one_is_not() -> None:
    assert shortened("t" * LONGEST) == "t" * LONGEST
    assert shortened("g" * 32_000) == f"{'g' * 40}…{'g' * 15} (32,000 characters)"
    assert with_short_words(f"group {'g' * 300}: stuck") == f"group {shortened('g' * 300)}: stuck"
    table_of_long = printed("g" * 32_000, RowFormat.TABLE, is_terminal=True)
    assert max(map(len, OUR_COLOUR.sub("", table_of_long).splitlines())) <= 160
    assert "g" * 32_000 in printed("g" * 32_000, RowFormat.CSV, is_terminal=False)


@odd_names
@given(ANY_TEXT)
def test_json_is_what_was_put_into_it(name: str) -> None:
    text = json_text({"group": name, name: [name, None, 1.5]})
    assert text.isprintable()
    assert json.loads(text) == {"group": name, name: [name, None, 1.5]}
    content = {"group": name, name: [name, {name: [name]}, 1.5], "none": [], "n": None}
    assert JsonResponse(content).body.decode() == json_text(content), "also where a list is written item by item"
    document = json.loads(printed(name, RowFormat.JSON, is_terminal=False))
    assert [row["group"] for row in document["rows"]] == [name, "plain"]
    lines = printed(name, RowFormat.JSON, is_terminal=False, is_stream=True).splitlines()
    assert [json.loads(line) for line in lines] == document["rows"]


@odd_names
@given(ANY_TEXT)
def test_csv_has_the_same_cells_and_no_formula(name: str) -> None:
    document = printed(name, RowFormat.CSV, is_terminal=False)
    heading, row, plain = csv.reader(io.StringIO(document, newline=""))
    assert (heading, plain[:2]) == (["group", "lag", "members"], ["plain", "-1"])
    assert not row[0].startswith(FORMULA)
    guard = "'" if name.startswith((*FORMULA, "'")) else ""
    assert row[:2] == [guard + name, "7"]
    members = json.loads(row[2]) if row[2].startswith("[") else row[2].removeprefix("'").split(" ")
    assert members == [name, "b"]


@given(st.lists(st.one_of(ANY_TEXT, st.none(), st.integers()), min_size=1))
def test_a_line_of_csv_is_one_record(cells: list[Any]) -> None:
    (read,) = csv.reader(io.StringIO(csv_line(cells) + "\n", newline=""))
    assert len(read) == len(cells)
    assert [each.removeprefix("'") for each in read] == ["" if each is None else str(each) for each in cells]


class Elements(html.parser.HTMLParser):
    """The elements of a document in their order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.links = list[str](), "", list[str]()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for key, value in attrs if key == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(name: str) -> Iterator[str]:
    values = known_values({"cluster": name, "group": name, "topic": name})
    yield document(name, sentence(name, is_good=False), table([name], [[name, name]]))
    yield section_page(runbook(), "IsrwatchGroupStuck", values)
    yield list_page(runbook(), values)


@odd_names
@given(ANY_TEXT)
def test_an_error_of_a_command_is_one_line(name: str) -> None:
    done = CliRunner().invoke(app, ["explain", "--", f"nothing is called {name}"], env={"COLUMNS": "1000000"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert visible(done.stderr)
    assert done.stderr.count("\n") == 1


@odd_names
@given(ON_THE_WIRE)
def test_a_page_has_the_name_as_text_and_no_other_elements(name: str) -> None:
    text = Elements(document("t", sentence(name, is_good=True))).text
    if len(name) <= LONGEST:
        assert text.endswith(f"t{printable(name)}\n")
    first, *others = map(Elements, pages(name))
    assert first.tags == next(map(Elements, pages("plain"))).tags
    assert visible(first.text.replace("\n", ""))
    for page, like in zip(others, [*map(Elements, pages("plain"))][1:], strict=True):
        if known_values({"group": name}):
            assert [tag for tag in page.tags if tag != "mark"] == [tag for tag in like.tags if tag != "mark"]
        for link in page.links:
            given_there = parse_qs(urlsplit(link).query, keep_blank_values=True)
            assert given_there.get("group", [name]) == [name]
    unknown = Elements(unknown_page(runbook(), name, {}))
    assert "script" not in unknown.tags


@odd_names
@given(ON_THE_WIRE)
def test_answers_in_lines_and_errors_keep_their_lines(name: str) -> None:
    body = bytes(lines_response([f"unknown cluster {name}", "b"], 404).body).decode()
    assert visible(body)
    assert body.count("\n") == 2
    assert visible(json.loads(bytes(error_response(f"unknown cluster {name}", 404).body))["error"])


@odd_names
@given(ON_THE_WIRE)
def test_the_exposition_has_the_same_labels(name: str) -> None:
    text = "# TYPE lag gauge\n" + line("lag", ("group", "topic"), (name, "t"), 7)
    for read in (prometheus(text), openmetrics(text + "# EOF\n")):
        assert [each.labels for family in read for each in family.samples] == [{"group": name, "topic": "t"}]


@odd_names
@given(ON_THE_WIRE)
def test_a_link_leads_to_what_it_was_made_of(name: str) -> None:
    path = metrics_path(name)
    assert path.isascii()
    assert unquote(urlsplit(path).path.removeprefix("/clusters/").removesuffix("/metrics")) == name


def grafana(name: str) -> str:
    """Write a value as Grafana's format ``regex`` does."""
    return re.sub(r"[\\^$*+?.()|[\]{}/]", lambda char: f"\\{char[0]}", name)


@odd_names
@given(ON_THE_WIRE)
def test_promql_selects_just_what_a_name_says(name: str) -> None:
    (matcher,) = promql_parser.parse(f"lag{{group={quoted(name)}}}").matchers.matchers
    assert matcher.value == name
    if "`" in name:
        return  # such a value is not offered
    selector = of_variable("group").replace("${group:regex}", grafana(name))
    (expression,) = re.fullmatch("group=~`([^`]*)`", selector).groups()  # type: ignore[union-attr]
    assert re.fullmatch(expression, name)
    assert not re.fullmatch(expression, name + "x")


@odd_names
@given(ANY_TEXT)
def test_a_line_of_a_log_is_one_line(name: str) -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "group %s is late", (name,), None)
    said = LogLines("%(levelname)s %(message)s").format(record)
    assert said == f"WARNING {printable(f'group {name} is late')}"
    for how in LogFormat:
        configure(LogLevel.INFO, how)
        formatted = logging.getLogger().handlers[-1].format(record)
        assert formatted.isprintable()
        if how is LogFormat.JSON:
            assert json.loads(formatted)["msg"] == f"group {name} is late"
