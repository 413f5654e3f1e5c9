"""The page of how right isrwatch is: a section that each command that judges writes, and a summary of all of them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.builder.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]
QUALITY: Final = Path("docs", "quality.md")


class Section(StrEnum):
    """A part of the page between two marks, by the name in them."""

    SUMMARY = "summary"
    INCIDENTS = "incidents"
    POLLED = "polled incidents"
    ALERTS = "alerts"
    SCENARIOS = "alerts of scenarios"
    REAL_TIME = "alerts in real time"
    QUIET = "quiet days"
    SLOW = "slow brokers"
    LONG = "long tests"


_WRITERS: Final = {
    Section.SUMMARY: "make generated",
    Section.INCIDENTS: "make judge ARGS=--write",
    Section.POLLED: 'make judge ARGS="--polled --write"',
    Section.ALERTS: 'make judge ARGS="--alerts --vmalert --write"',
    Section.SCENARIOS: "pytest --rewrite-golden --long tests/dashboards/test_scenario_alerts.py",
    Section.REAL_TIME: "python -m tests.judge.real_time --write",
    Section.QUIET: 'make judge ARGS="--quiet --write"',
    Section.SLOW: 'make judge ARGS="--slow --write"',
    Section.LONG: "make test-long ARGS=--write",
}
_ROW: Final = re.compile(r"^\|(.+)\|$", re.MULTILINE)
_INTERVAL: Final = re.compile(r" \([\d.]+ to [\d.]+\)")
NOT_JUDGED: Final = "not judged"


def marks(section: Section) -> tuple[str, str]:
    """Give the lines before and behind a section."""
    return f"<!-- {section}: written by `{_WRITERS[section]}` -->", f"<!-- end of {section} -->"


def section_of(page: str, section: Section) -> str:
    """Return a section of a page, without its marks."""
    begin, end = marks(section)
    return page.partition(begin)[2].partition(end)[0].strip("\n")


def with_section(page: str, section: Section, text: str) -> str:
    """Return a page with another text as a section of it.

    Raises:
        ValueError: the page has no such section.
    """
    begin, end = marks(section)
    start, stop = page.index(begin) + len(begin), page.index(end)
    return "\n".join([page[:start], "", text.strip("\n"), "", page[stop:]])


def write_section(section: Section, text: str, page: Path = ROOT / QUALITY) -> None:
    """Replace a section of the page, and its summary if it has one."""
    written = with_section(page.read_text(encoding="utf-8"), section, text)
    page.write_text(with_summary(written) if marks(Section.SUMMARY)[0] in written else written, encoding="utf-8")


def folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Give lines that a reader opens by their title."""
    yield from (f"<details><summary>{title}</summary>", "", *lines, "", "</details>")


def figure(text: str, beginning: str, column: int = 2) -> str:
    """Return a figure of the first row that begins so, without its interval; that it is not judged if none does.

    >>> figure("| class right (all) | 95 % | 99.5 % (99.2 to 99.7) of 2326 |", "class right")
    '99.5 % of 2326'
    """
    rows = [[cell.strip() for cell in row.split("|")] for row in _ROW.findall(text)]
    return _INTERVAL.sub("", next((row[column] for row in rows if row[0].startswith(beginning)), NOT_JUDGED))


# The summary: one row per question, with the figures of the sections.


def rendered_quality() -> str:
    """Return the page with the summary that its sections give now."""
    return with_summary((ROOT / QUALITY).read_text(encoding="utf-8"))


def with_summary(page: str) -> str:
    """Return a page with the summary that its sections give."""
    logged, woken = section_of(page, Section.INCIDENTS), section_of(page, Section.ALERTS)
    quiet, slow = section_of(page, Section.QUIET), section_of(page, Section.SLOW)
    woken, _, woken_polled = woken.partition("### Polled clusters")
    rows = (
        *_compared(page),
        ("a cause called proven that is wrong", figure(logged, "a wrong `proven`"), "none is called proven"),
        *(
            (what, figure(woken, row), figure(woken_polled, row))
            for what, row in (
                ("harm that no critical alert reported in time", "harm that woke too late"),
                ("critical alerts without harm", "woken although"),
                ("first message names class, broker and next step", "first message has"),
            )
        ),
        ("alerts on quiet days that nothing explains", figure(quiet, "alerts that belong to nothing"), NOT_JUDGED),
        ("slow brokers found", figure(slow, "slow brokers found", 1), NOT_JUDGED),
        ("plays in which a broker is wrongly called slow", figure(slow, "plays with a false", 1), NOT_JUDGED),
    )
    lines = table(("", "metadata log", "polling"), rows, pad=" ")
    return with_section(page, Section.SUMMARY, "\n".join(lines))


def compared(root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """Give what is judged of incidents, and the figures of the metadata log and of polling."""
    return _compared((root / QUALITY).read_text(encoding="utf-8"))


def _compared(page: str) -> Iterator[tuple[str, str, str]]:
    logged, polled = section_of(page, Section.INCIDENTS), section_of(page, Section.POLLED)
    yield "class of an incident right", figure(logged, "class right"), figure(polled, "class right")
    yield "suspects right", figure(logged, "suspects right"), figure(polled, "suspects right")
    benign = "benign reported as harmful"
    yield benign, figure(logged, benign), figure(polled, benign)
    harm = "harm reported as benign, or not at all (polled: of 12 s or more)"
    yield harm, figure(logged, "harmful reported as benign"), figure(polled, "harm of at least 12 s")
    elections = "unclean elections reported (polled: that a poll could see)"
    yield elections, figure(logged, "unclean_election", 1), figure(polled, "unclean elections reported that a poll")
