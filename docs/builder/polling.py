"""The reference of polling, and the comparison of the metadata log and polling in README.md, with judged figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from docs.builder.markdown import plain, table
from streaming.sources.evidence import POLLED_EVIDENCE
from streaming.sources.permissions import PERMISSIONS
from streaming.sources.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.sources.evidence import PolledEvidence

ROOT: Final = Path(__file__).parents[2]
_HEAD: Final = """# Polling, row by row

What isrwatch learns of a cluster whose metadata log it does not read, and what is lost without a row:
[how it polls](../polling.md). `isrwatch doctor` names the rows that a cluster lacks. Each permission was given alone on
a real cluster of Kafka 4.4.0 with the StandardAuthorizer: its rows are answered, and no others. `ClusterAction` gives
OffsetForLeaderEpoch, too.
"""
_OLDER: Final = """## With ZooKeeper, and on older brokers

A cluster whose Kafka is older than a row lacks it. With ZooKeeper these are lacking, too: {lost}.
"""
_SERVICES: Final = """## What services grant

The permissions as each service writes them; an empty cell is one that its documentation does not have. Of none is it
known that it lets a monitor read the metadata log: the last row says why.
"""


def polling_page() -> str:
    """Render every row of the evidence of polling, those that ZooKeeper lacks, and what services grant."""
    rows = (
        (each.name, each.request, _permission(each), each.since, plain(each.gives), plain(each.without))
        for each in POLLED_EVIDENCE
    )
    lines = [_HEAD, *table(("what", "request", "permission", "since Kafka", "gives", "without it"), rows), ""]
    lines += [_OLDER.format(lost=", ".join(each.name for each in POLLED_EVIDENCE if not each.in_zookeeper_mode)), ""]
    heading = ("permission", *(f"[{each.name}](../{Path(each.document).name})" for each in SERVICES))
    grants = (
        (f"`{one.operation}` on {one.on}", *(_code(each.grants.get(one, "")) for each in SERVICES))
        for one in PERMISSIONS
    )
    why = ("the metadata log", *(each.why_no_log for each in SERVICES))
    lines += [_SERVICES, *table(heading, (*grants, why)), ""]
    return "\n".join(lines)


def _permission(each: PolledEvidence) -> str:
    if each.needs is not None:
        return f"`{each.needs.operation}` on {each.needs.on}"
    if each.otherwise is not None:
        return f"none; before, `{each.otherwise.operation}` on {each.otherwise.on}"
    return "none"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# The comparison: figures are those of the pages of the judge, so that they are never older than these.


class Judged(NamedTuple):
    """One thing that is judged.

    Attributes:
        what: is judged.
        logged: beginning of its row on the page of the judge.
        polled: beginnings of its row on the page of polled plays, and before there was one.
        column: of the figure on the page of the judge.
    """

    what: str
    logged: str
    polled: tuple[str, ...]
    column: int = 2


_BEGIN, _END = "<!-- comparison: rendered by `make generated` -->", "<!-- end of the comparison -->"
_ROW: Final = re.compile(r"^\|(.+)\|$", re.MULTILINE)
_INTERVAL: Final = re.compile(r" \([\d.]+ to [\d.]+\)")
_OF_POLLS: Final = Path("docs", "judge_polled.md")
_POLLED_SECTION: Final = "### Polled clusters"
NOT_JUDGED: Final = "not judged"
_JUDGED: Final = (
    Judged("class of an incident right", "class right", ("class right", "class as if the metadata log had been read")),
    Judged("suspects right", "suspects right", ("suspects right",)),
    Judged("benign reported as harmful", "benign reported as harmful", ("benign reported as harmful",)),
    Judged(
        "harm reported as benign, or not at all (polled: of 12 s or more)",
        "harmful reported as benign",
        ("harm of at least 12 s", "harmful for at least 12 s"),
    ),
    Judged(
        "unclean elections reported (polled: of those that a poll could see)",
        "unclean_election",
        ("unclean elections reported",),
        column=1,
    ),
)
_PLAIN: Final = (
    ("needs", "`ClusterAction`, and the controllers' listener", "`Describe`, and the brokers' listeners"),
    ("changes", "every one, in order", "what two answers differ in; changes missed between them are counted"),
    ("time of a change", "the controller's own", "between two answers"),
    ("cause", "proven by the order of records, else ambiguous", "inferred, with the evidence in words"),
    ("unclean elections", "every one", "those that a leader, an epoch or a log end gives away"),
    ("restart order", "with the controllers' quorum", "with it, if the user may `Describe` the cluster"),
)


def with_comparison(root: Path = ROOT) -> str:
    """Return README.md with the comparison as the pages of the judge have it now."""
    text = (root / "README.md").read_text(encoding="utf-8")
    begin, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
    rows = [*_PLAIN, *_judged(root)]
    polled = ", [of polls](docs/judge_polled.md)" if (root / _OF_POLLS).is_file() else ""
    judged = f"Judged are random faults of simulated clusters: [how right it is](docs/judge.md){polled}."
    return "\n".join(
        [text[:begin], "", *table(("", "metadata log", "polling"), rows, pad=" "), "", judged, "", text[end:]]
    )


def _judged(root: Path) -> Iterator[tuple[str, str, str]]:
    page = (root / "docs" / "judge.md").read_text(encoding="utf-8")
    of_log, _, of_polls = page.partition(_POLLED_SECTION)
    own = root / _OF_POLLS
    of_polls = own.read_text(encoding="utf-8") if own.is_file() else of_polls
    for each in _JUDGED:
        yield f"{each.what}, judged", figure(of_log, each.logged, column=each.column), figure(of_polls, *each.polled)


def figure(text: str, *beginnings: str, column: int = 2) -> str:
    """Return a figure of the first row that begins so, without its interval; that it is not judged if none does.

    >>> figure("| class right (all) | 95 % | 99.5 % (99.2 to 99.7) of 2326 |", "class right")
    '99.5 % of 2326'
    """
    rows = [[cell.strip() for cell in row.split("|")] for row in _ROW.findall(text)]
    figures = (row[column] for beginning in beginnings for row in rows if row[0].startswith(beginning))
    return _INTERVAL.sub("", next(figures, NOT_JUDGED))
