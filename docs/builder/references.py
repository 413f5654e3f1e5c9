"""The pages that are rendered from the code, by their place in the site; references stand in the repository, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from docs.builder.api import api_page
from docs.builder.command_line import commands_page
from docs.builder.costs import SIZES, with_costs
from docs.builder.markdown import plain, table
from docs.builder.metrics import metrics_page
from docs.builder.polling import polling_page, with_comparison
from docs.builder.quality import QUALITY, rendered_quality
from docs.builder.tables import markdown as tables_page
from streaming.contracts.alerts import ALERTS, Pack, ThresholdUnit
from streaming.contracts.events import EXPLAINED, EventKind, meanings
from streaming.durations import duration_text
from streaming.model.cluster.statements import STATEMENTS
from streaming.resources import conf_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.alerts import Alert
    from streaming.model.cluster.statements import Statement

# Every alert, with what the configuration may change.


_ALERTS_HEAD: Final = """# Alerts

The pack `alerts` is on by default; `alerts.packs` adds others. A rule selects series of its conditions, and takes their
labels. *Severity* is the gravest that an alert has, *lasts* how long something must be wrong before it fires (`for`).
[Configuration](configuration.md) has the keys of `[alerts]`, the [runbook](../../exporters/web/runbook.md) what to do.
"""


def alerts_page() -> str:
    """Render every alert, by pack."""
    lines = [_ALERTS_HEAD]
    for pack in Pack:
        rows = (
            (
                f"`{name}`",
                alert.severity.value,
                ", ".join(f"`{condition}`" for condition in alert.conditions),
                "" if alert.lasting is None else duration_text(alert.lasting),
                _threshold(alert),
            )
            for name, alert in ALERTS.items()
            if alert.pack is pack
        )
        lines += [f"## {pack}", "", *table(("alert", "severity", "conditions", "lasts", "threshold"), rows), ""]
    return "\n".join(lines)


def _threshold(alert: Alert) -> str:
    if alert.threshold is None:
        return ""
    is_duration = alert.unit is ThresholdUnit.DURATION
    return duration_text(alert.threshold) if is_duration else f"{alert.threshold:g}"


# Every key of the configuration with its default and its comment, from ``conf/isrwatch.toml``.


_CONFIGURATION_HEAD: Final = """# Configuration

One TOML file. A wrong key, type or value is refused with one sentence that names it. This is
[conf/isrwatch.toml](../../conf/isrwatch.toml): start from a copy of it. Below each key stands its default. Relative
paths are resolved against the working directory of the command.

Every command reads the first of these alone: `--config FILE`, the variable `ISRWATCH_CONFIG`, `isrwatch.toml` in the
working directory, `/etc/isrwatch/isrwatch.toml`. `isrwatch doctor` says which it is.

A variable overrides a key: `ISRWATCH_`, and the key in capital letters with two underscores for each dot
(`ISRWATCH_TABLES__DIRECTORY=/data/tables`). Lists have commas (`ISRWATCH_COLLECT__GROUPS='payments-*,!*-test'`), tables
of strings are TOML (`ISRWATCH_CLUSTER__CLIENT='{ "security.protocol" = "SSL" }'`). A variable of a key that does not
exist is refused, and so is one of a key of several `[[cluster]]`.

Durations have their unit, as in Prometheus: `"250ms"`, `"5s"`, `"1h30m"`, `"90d"`.

Clusters, topics and groups are chosen by patterns, here and in options of commands. In a pattern `*` stands for any
characters and `?` for one; the others stand for themselves, and regular expressions are refused. A pattern that begins
with `!` leaves out. A name is chosen if it fits a pattern without `!`, or there is none, and fits no pattern with it:
`["orders-*", "!*-tmp"]`, `["!tmp-*"]`.
"""
_SECTION: Final = re.compile(r"^#?(\[[a-z_.]+\])$")
_KEY: Final = re.compile(r'^(#?)([a-z_]+|"[^"]+") = (.+)$')


def configuration_page() -> str:
    """Render all sections and keys in the order of the file."""
    _, _, text = conf_path("isrwatch.toml").read_text(encoding="utf-8").partition("\n\n")  # the head is about the file
    rendered = "\n".join([_CONFIGURATION_HEAD, *_rendered(text.splitlines())])
    return rendered.replace("```\n\n```toml\n", "") + "\n"  # examples below each other are one


def _rendered(lines: Iterable[str]) -> Iterator[str]:
    """Put each comment below the heading of what it is about; one that is about nothing is a paragraph of its own."""
    comment: list[str] = []
    section = ""
    for line in lines:
        if heading := _SECTION.match(line):
            section = heading[1].strip("[]")
            yield from (f"## {section}", "", *_prose(comment))
        elif key := _KEY.match(line):
            is_example, name, value = key.groups()
            yield from _key(section, name, value, bool(is_example), comment)
        elif line.startswith("#"):
            comment.append(line[2:])
            continue
        else:
            yield from _prose(comment)
        comment = []
    yield from _prose(comment)


def _key(section: str, name: str, value: str, is_example: bool, comment: list[str]) -> Iterator[str]:  # noqa: FBT001 - of a row
    if name.startswith('"'):  # a key that the user chooses, or a property of librdkafka
        yield from (*_prose(comment), "```toml", f"{name} = {value}", "```", "")
        return
    default = f"Empty; example: `{value}`" if is_example else f"`{value}`"
    yield from (f"### {section}.{name}", "", default, "", *_prose(comment))


def _prose(comment: list[str]) -> Iterator[str]:
    """Join the lines of each paragraph; what is indented is code."""
    paragraphs = "\n".join(comment).strip("\n").split("\n\n") if comment else []
    for paragraph in paragraphs:
        lines = paragraph.splitlines()
        words = [line for line in lines if not line.startswith("    ")]
        code = [line[4:] for line in lines if line.startswith("    ")]
        if words:
            yield from (plain(" ".join(words)), "")
        if code:
            yield from ("```toml", *code, "```", "")


# The values of causes, evidence and incidents with their meaning.


_EVENT_VALUES_HEAD: Final = """# Events, causes, incidents

The values of `event`, `cause` and `evidence` in [replication_events](tables.md#replication_events), and of `class` and
`severity` in [incidents](tables.md#incidents). `isrwatch explain ambiguous` prints the meaning of one in a terminal.
How often they are right: [judged](../quality.md).
"""


def events_page() -> str:
    """Render one table per set of values."""
    events = ", ".join(f"`{kind}`" for kind in EventKind)
    parts = [_EVENT_VALUES_HEAD, "## Events", "", f"{events}.", ""]
    for title, values in EXPLAINED.items():
        rows = ((f"`{value}`", plain(text)) for value, text in meanings(values).items())
        parts += [f"## {title}", "", *table(("value", "meaning"), rows), ""]
    return "\n".join(parts)


# Claims about Kafka's replication, and what Kafka does: the statements that ``isrwatch explain`` prints.


_STATEMENTS_HEAD: Final = """# Statements about replication, and what Kafka does

{count} statements of texts about Kafka, from different years. Below each: what Kafka does, and, after *But*, where it
differs. Each has a rule in the model of a cluster that comes with isrwatch, and tests of it. `isrwatch explain
min.insync` prints those that contain a word.
"""


def statements_page() -> str:
    """Render all statements."""
    parts = [_STATEMENTS_HEAD.format(count=len(STATEMENTS))]
    return "\n".join([*parts, *(_statement(number, each) for number, each in STATEMENTS.items())])


def _statement(number: int, statement: Statement) -> str:
    differs = f"\nBut: {plain(statement.differs)}\n" if statement.differs else ""
    return f"## {number}. {plain(statement.claim)}\n\n{plain(statement.does)}\n{differs}"


REFERENCES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/alerts.md": alerts_page,
    "reference/api.md": api_page,
    "reference/commands.md": commands_page,
    "reference/configuration.md": configuration_page,
    "reference/metrics.md": metrics_page,
    "reference/statements.md": statements_page,
    "reference/tables.md": tables_page,
    "reference/events.md": events_page,
    "reference/polling.md": polling_page,
}
_MARK: Final = "<!-- Rendered from the code by `make generated`: change the code, not this file. -->\n\n"


def rendered_files() -> dict[str, dict[str, str]]:
    """Render what a checkout has without a build of the site, by folder and name of the file."""
    return {
        "docs/reference": {place.removeprefix("reference/"): _MARK + render() for place, render in REFERENCES.items()},
        "": {"README.md": with_costs(with_comparison())},
        "docs": {QUALITY.name: rendered_quality(), SIZES.name: with_costs(SIZES.read_text(encoding="utf-8"))},
    }
