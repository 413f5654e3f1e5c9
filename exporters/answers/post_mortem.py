"""An incident as Markdown, to begin its post-mortem with: what is known, and headings for what only people know.

Names and texts are of others: each is escaped, so that none begins a heading, a link, or HTML.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from exporters.answers.event_text import causes_explained
from exporters.answers.incidents import closed, suspects
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.times import Clock
from streaming.escapes import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.answers.incidents import IncidentReport

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~&!])")
_BEGINS: Final = re.compile(r"^(\s*)([-+=]|\d+[.)])")
_COUNTS: Final = {
    "partitions": "partitions that were affected",
    "under_replicated_peak": "most under-replicated partitions at once",
    "under_min_isr_peak": "most partitions under min ISR at once",
    "offline_peak": "most offline partitions at once",
    "isr_shrinks": "ISR shrinks",
    "leader_changes": "leader changes",
    "unclean_elections": "unclean elections",
}


def markdown(explained: IncidentReport) -> str:
    """Return the post-mortem of an incident; times are UTC."""
    return "\n".join(_lines(explained, Clock(explained.now))) + "\n"


def escaped(text: object) -> str:
    r"""Return a text as Markdown that shows it.

    >>> print(escaped("<b>*x*"), escaped("1. a"))
    \<b\>\*x\* 1\. a
    """
    plain = _SPECIAL.sub(r"\\\1", printable(str(text)))
    return _BEGINS.sub(lambda begin: f"{begin[1]}{begin[2][:-1]}\\{begin[2][-1]}", plain)


def _lines(explained: IncidentReport, clock: Clock) -> Iterator[str]:
    row = explained.incident
    yield f"# {escaped(shown_id(row))}: {escaped(row['summary'])}"
    yield ""
    for sentence in (explained.stale, *explained.unreadable.values()):
        if sentence:
            yield f"> {escaped(sentence)}"
            yield ""
    for name, text in _head(explained, clock).items():
        yield f"- **{name}**: {text}"
    yield from _section("Impact", _impact(explained))
    yield from _section("Cause", _cause(row))
    yield from _section("Timeline (UTC)", _timeline(explained, clock))
    for heading in ("What went well, what did not", "What is done so that it does not happen again"):
        yield from _section(heading, iter(["_to be written_"]))


def _section(heading: str, lines: Iterator[str]) -> Iterator[str]:
    yield ""
    yield f"## {heading}"
    yield ""
    yield from lines


def _head(explained: IncidentReport, clock: Clock) -> dict[str, str]:
    row = explained.incident
    every = {
        "Cluster": escaped(row["cluster"]),
        "Severity": escaped(row["severity"]),
        "Class": escaped(row["incident_class"]),
        "Opened": clock.iso(row["opened_at"]),
        "Closed": escaped(closed(row, clock)),
        "Includes": escaped(", ".join(explained.parts)),
        "Before and after": escaped(" and ".join(each or "none" for each in (explained.before, explained.after))),
        "Page": "" if explained.url is None else f"<{explained.url}>",
    }
    return {name: text for name, text in every.items() if text}


def _impact(explained: IncidentReport) -> Iterator[str]:
    row = explained.incident
    if row["consequence"]:
        yield escaped(row["consequence"])
        yield ""
    for name, words in _COUNTS.items():
        if row[name] is None or row[name]:
            yield f"- {words}: {'unknown' if row[name] is None else format(row[name], ',')}"
    if row["topics"]:
        more = (row["topic_count"] or 0) - len(row["topics"])
        yield f"- topics: {escaped(', '.join(row['topics']))}{f' and {more:,} more' if more > 0 else ''}"
    for text in (*explained.groups, *(f"harm that {each} accounts for" for each in explained.explained_by)):
        yield f"- {escaped(text)}"


def _cause(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"Suspected brokers, with how much each explains alone: {escaped(suspects(row))}."
    causes = ", ".join(f"{each['cause']} {each['changes']:,}" for each in row["causes"] or ())
    if causes:
        yield ""
        yield f"Changes of partitions by cause: {escaped(causes)}."
        yield ""
        explained = causes_explained(each["cause"] for each in row["causes"])
        yield from (f"- {escaped(cause)}: {escaped(meaning)}" for cause, meaning in explained.items())
    if row["next_step"]:
        yield ""
        yield f"Do first: {escaped(row['next_step'])}"


def _timeline(explained: IncidentReport, clock: Clock) -> Iterator[str]:
    lines = [(each["at"], _moment(each)) for each in explained.moments]
    for work in explained.work:
        text = f"planned work on broker {work['broker']} was announced: {escaped(work['text'])}"
        lines.append((work["since"], text))
        if work["until"] is not None:
            end = "overran" if work["has_overrun"] else "was over"
            lines.append((work["until"], f"planned work on broker {work['broker']} {end}"))
    yield from (f"- {clock.iso(at)} {text}" for at, text in sorted(lines, key=lambda line: line[0]))
    if not explained.is_whole:
        yield "- … and more until the end, which isrwatch events shows"


def _moment(moment: Mapping[str, Any]) -> str:
    cause = f" ({escaped(moment['cause'])})" if moment["cause"] else ""
    return f"**{escaped(moment['subject'])}** {escaped(moment['what'])}{cause}"
