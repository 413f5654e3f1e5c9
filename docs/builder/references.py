"""The pages that are rendered from the code, by their place in the site; references stand in the repository, too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import typer

from docs.builder.markdown import plain, table
from docs.builder.polling import polling_page, with_comparison
from docs.builder.tables import markdown as tables_page
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.web.api import ENDPOINTS
from exporters.web.openapi import document_of
from streaming.commands import COMMANDS, load
from streaming.contracts.alerts import ALERTS, Pack, ThresholdUnit
from streaming.contracts.events import EXPLAINED, EventKind, meanings
from streaming.durations import duration_text
from streaming.model.cluster.statements import STATEMENTS
from streaming.resources import conf_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.metrics.metric import Metric
    from streaming.contracts.alerts import Alert
    from streaming.model.cluster.statements import Statement

# Every alert, with what the configuration may change.


_ALERTS_HEAD: Final = """# Alerts

The pack `alerts` is on as it comes; `alerts.packs` adds the others. A rule selects series of the conditions, whose
labels are those of the alert. *Severity* is the gravest one that an alert has. *Lasts* is for how long something is
wrong before the alert fires, the key `for` of the alert. [Configuration](configuration.md) has the keys of `[alerts]`,
the [runbook](../../exporters/web/runbook.md) what to do.
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


# The paths of the JSON API, from the document that the exporter serves at ``/api/v1/openapi.json``.


_API_HEAD: Final = """# Paths of the JSON API

Made of the same declarations as `/api/v1/openapi.json` of the exporter. What all paths have in common, with examples:
[JSON API](../api.md).
"""
Schema = dict[str, Any]


def api_page() -> str:
    """Render every path with its parameters, its statuses and the columns of its rows."""
    document = document_of(ENDPOINTS, version("isrwatch"))
    schemas = document["components"]["schemas"]
    lines = [_API_HEAD]
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path]["get"]
        lines += [f"## {endpoint.path}", "", plain(operation["description"]), ""]
        parameters = (
            (f"`{each['name']}`", _type(each["schema"]), plain(each["description"])) for each in operation["parameters"]
        )
        lines += [*table(("parameter", "type", "meaning"), parameters), ""]
        statuses = ((status, plain(each["description"])) for status, each in sorted(operation["responses"].items()))
        lines += [*table(("status", "meaning"), statuses), ""]
        for name in endpoint.schemas:
            lines += [f"### {name}", "", *_columns(schemas[name]), ""]
    return "\n".join(lines)


def _columns(schema: Schema) -> list[str]:
    rows = (
        (f"`{name}`", _type(each), plain(each.get("description", ""))) for name, each in schema["properties"].items()
    )
    return table(("column", "type", "meaning"), rows)


def _type(schema: Schema) -> str:
    """Name the type of a value, by its alternatives; for an array, the type of its items."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type") or [_type(each) for each in schema.get("anyOf", ())]
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    inside = f" of {_type(schema['items'])}" if "items" in schema else ""
    return " or ".join(names) + inside


# Every command with its arguments and options, from the declarations that the command line is parsed by.


_COMMAND_LINE_HEAD: Final = """# Commands

`isrwatch COMMAND --help` prints the same. Options of `isrwatch` itself come before the command: `--version`, and
`--debug`, which shows the traceback of an error. Exit code 2 means a wrong option or configuration, 1 any other error;
where a command has others, it says so.
"""
_COMMAND: Final = re.compile(r"(?:^|: )((?:isrwatch [a-z]+|spark-submit) .*)$")
Declared = Any  # a command or a parameter of typer, whose classes are not public


def commands_page() -> str:
    """Render every command; the sub-commands of a command follow it."""
    lines = [_COMMAND_LINE_HEAD]
    for name in COMMANDS:
        lines += _command(f"isrwatch {name}", load(name), level=2)
    return "\n".join(lines)


def _command(path: str, command: Declared, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {path}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (*_paragraph(" ".join(paragraph.split())), "")
    parameters = [each for each in command.params if "--help" not in each.opts]
    if parameters:
        context = typer.Context(command)
        rows = ((_spelled(each, context), plain(each.help or "") + _default(each)) for each in parameters)
        yield from (*table(("argument or option", "meaning"), rows), "")
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(f"{path} {name}", child, level + 1)


def _paragraph(text: str) -> Iterator[str]:
    """Show a command as code: one that a paragraph is, or that stands behind its colon."""
    example = _COMMAND.search(text)
    sentence = text[: example.start(1)] if example else text
    if sentence and sentence not in {"Example: ", "Examples: "}:
        yield plain(sentence.strip())
    if example:
        yield from ("```", example[1], "```")


def _spelled(parameter: Declared, context: typer.Context) -> str:
    """Spell a parameter as one types it: its names, and what its value is."""
    if parameter.param_type_name == "argument":
        words = parameter.metavar or parameter.name.upper()
        return f"`{words if parameter.required else f'[{words}]'}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    kind = "" if parameter.is_flag else f" `{parameter.metavar or parameter.display_type(context).strip('<>')}`"
    return names + kind + (", may be repeated" if parameter.multiple else "")


def _default(parameter: Declared) -> str:
    """Name a default that is a number or a word; one that is a path of this machine says nothing elsewhere."""
    shown = isinstance(parameter.default, int | float | str) and not isinstance(parameter.default, bool)
    return f" Default: `{parameter.default}`." if shown and parameter.default != "" else ""


# Every key of the configuration with its default and its comment, from ``conf/isrwatch.toml``.


_CONFIGURATION_HEAD: Final = """# Configuration

One TOML file. A wrong key, type or value is refused with one sentence that names it. This is
[conf/isrwatch.toml](../../conf/isrwatch.toml), which has every key with its default; start from a copy of it. Relative
paths are resolved against the working directory of the command.

Every command reads the first of these, and no other: `--config FILE`, the variable `ISRWATCH_CONFIG`, `isrwatch.toml`
in the working directory, `/etc/isrwatch/isrwatch.toml`. `isrwatch doctor` says which it is.

A variable overrides a key of the file. Its name is `ISRWATCH_`, and the key in capital letters with two underscores for
each dot: `ISRWATCH_TABLES__DIRECTORY=/data/tables`, `ISRWATCH_BUS__KAFKA__BOOTSTRAP_SERVERS=bus-1:9092`. The items of a
list have commas between them (`ISRWATCH_COLLECT__GROUPS='payments-*,!*-test'`), a table of strings is one of TOML
(`ISRWATCH_CLUSTER__CLIENT='{ "security.protocol" = "SSL" }'`). A variable of a key that does not exist is refused. Of
several `[[cluster]]` it overrides what is in `[collect]`, and no key of the clusters themselves.

Durations are written with their unit, as in Prometheus: `"250ms"`, `"5s"`, `"30m"`, `"1h30m"`, `"90d"`. A number
without a unit is refused.

Clusters, topics and groups are chosen by patterns, here and in options of commands. A pattern is a whole name in which
`*` stands for any characters and `?` for one; every other character is itself. A pattern that begins with `!` leaves
out. Of several, a name has to fit one that does not leave out, if there is any such, and none that does, in whichever
order: `["orders-*", "!*-tmp"]` are the names that begin with `orders-` and do not end with `-tmp`, and `["!tmp-*"]` are
all that do not begin with `tmp-`. Regular expressions are refused.
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
    default = f"Empty by default; for example `{value}`." if is_example else f"Default: `{value}`."
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
How often they are right: [judged](../judge.md).
"""


def events_page() -> str:
    """Render one table per set of values."""
    events = ", ".join(f"`{kind}`" for kind in EventKind)
    parts = [_EVENT_VALUES_HEAD, "## Events", "", f"{events}.", ""]
    for title, values in EXPLAINED.items():
        rows = ((f"`{value}`", plain(text)) for value, text in meanings(values).items())
        parts += [f"## {title}", "", *table(("value", "meaning"), rows), ""]
    return "\n".join(parts)


# Every metric of the exporter, as ``isrwatch export --list-metrics`` lists them, by subject.


_METRICS_HEAD: Final = """# Metrics

Every metric of `isrwatch export`; `isrwatch export --list-metrics` prints the same. [How it
compares](../how-it-compares.md) says which of them other exporters have. Those of partitions and replicas exist while a
partition is not healthy, and for an hour after its last change; counts and counters always exist, from 0. In
OpenMetrics, counters of a whole cluster or of the exporter have a sample `_created`, too: when they were 0.
"""
_DROP_IN: Final = "Names of kafka_exporter"


def metrics_page() -> str:
    """Render the catalogue, one table per subject, and the names of MBeans."""
    lines = [_METRICS_HEAD]
    for subject, metrics in groupby(sorted(CATALOGUE, key=_subject), key=_subject):
        rows = ((f"`{metric.name}`", f"{plain(metric.help)} {_kind(metric)}") for metric in metrics)
        lines += [f"## {subject}", "", *table(("metric", "meaning"), rows), ""]
    beans = (
        (f"`{metric.name}`", f"{plain(metric.help)} {_kind(metric)} `{mbean}`") for mbean, metric, _ in JMX_METRICS
    )
    lines += ["## Names of MBeans, at /metrics/jmx", "", *table(("metric", "meaning, MBean"), beans), ""]
    return "\n".join(lines)


def _kind(metric: Metric) -> str:
    """Say in a few words what a scrape shows of it; a table with a column for each would not fit a screen."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    stability = "" if metric.stability == "stable" else f", {metric.stability}"
    return f"*{metric.kind}{stability}{f'; labels {labels}' if labels else ''}*"


def _subject(metric: Metric) -> str:
    """Give the first word of a metric of our own: it names what is measured."""
    if metric.is_drop_in:
        return _DROP_IN
    own = re.match(r"kafka_replication_([a-z]+)_", metric.name)
    return f"kafka_replication_{own[1]}" if own else metric.name.split("_")[0]


# Claims about Kafka's replication, and what Kafka does: the statements that ``isrwatch explain`` prints.


_STATEMENTS_HEAD: Final = """# What is said of replication, and what Kafka does

{count} statements that texts about Kafka make, from different years of Kafka. Each has a rule in the model of a cluster
that comes with isrwatch, and tests of it; `isrwatch explain` prints them in a terminal, `isrwatch explain min.insync`
those that contain a word.
"""


def statements_page() -> str:
    """Render all statements."""
    parts = [_STATEMENTS_HEAD.format(count=len(STATEMENTS))]
    return "\n".join([*parts, *(_statement(number, each) for number, each in STATEMENTS.items())])


def _statement(number: int, statement: Statement) -> str:
    module, _, name = statement.rule.partition(":")
    differs = f"\n**The difference.** {plain(statement.differs)}\n" if statement.differs else ""
    return (
        f"## {number}. {plain(statement.claim)}\n\n**What Kafka does.** {plain(statement.does)}\n{differs}\n"
        f"In the model: `{module.replace('.', '/')}.py`: `{name}`.\n"
    )


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
        "": {"README.md": with_comparison()},
    }
