"""The reference of polling, and the comparison of the metadata log and polling in README.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.builder.markdown import plain, table
from docs.builder.quality import QUALITY, ROOT, compared
from streaming.sources.evidence import POLLED_EVIDENCE
from streaming.sources.permissions import PERMISSIONS
from streaming.sources.services import SERVICES

if TYPE_CHECKING:
    from streaming.sources.evidence import PolledEvidence

_HEAD: Final = """# Polling, row by row

What isrwatch learns of a cluster whose metadata log it does not read, and what is lost without a row:
[how it polls](../polling.md). `isrwatch doctor` names the rows that a cluster lacks. Each permission was given alone on
a real cluster of Kafka 4.4.0 with the StandardAuthorizer: its rows are answered, and no others. `ClusterAction` gives
OffsetForLeaderEpoch, too.
"""
_OLDER: Final = """## With ZooKeeper, and on older brokers

A cluster whose Kafka is older than a row lacks it, unless the row says what serves before. With ZooKeeper these are
lacking, too: {lost}.
"""
_SERVICES: Final = """## What services grant

The permissions as each service writes them; an empty cell is one that its documentation does not have. None is known
to let a monitor read the metadata log: the last row says why.
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


# The comparison in README.md, whose figures are those of the page of quality, so that they are never older than these.


_BEGIN, _END = "<!-- comparison: rendered by `make generated` -->", "<!-- end of the comparison -->"
_PLAIN: Final = (
    ("needs", "`ClusterAction`, and the controllers' listener", "`Describe`, and the brokers' listeners"),
    ("changes", "every one, in order", "what two answers differ in; changes missed between them are counted"),
    ("time of a change", "the controller's own", "between two answers"),
    ("cause", "proven by the order of records, else ambiguous", "inferred, with the evidence in words"),
    ("unclean elections", "every one", "those that a leader, an epoch or a log end gives away"),
    ("restart order", "with the controllers' quorum", "with it, if the user may `Describe` the cluster"),
)


def with_comparison() -> str:
    """Return README.md with the comparison as the page of quality has it now."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
    judged = ((f"{what}, judged", logged, polled) for what, logged, polled in compared())
    rows = table(("", "metadata log", "polling"), [*_PLAIN, *judged], pad=" ")
    where = f"Judged are random faults of simulated clusters: [how right it is]({QUALITY})."
    return "\n".join([text[:begin], "", *rows, "", where, "", text[end:]])
