"""The command line: ``isrwatch COMMAND``.

A command is imported only when it is called, so ``isrwatch --help`` imports none, and a machine that only exports
needs neither Spark nor Java. This file contains the names and one-line help texts of the commands.

An error for the user is one red sentence and the exit code of its class (``streaming.errors``): 2 for wrong options or
configuration, mostly 1 for everything else. ``--debug`` shows the traceback.
"""

from __future__ import annotations

import atexit
import importlib
import inspect
import logging
import os
import re
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from streaming.errors import ConfigurationError, IsrwatchError, MissingTool, sentence_of
from streaming.escapes import printable
from streaming.settings import check_place
from streaming.terminal import LogLines, Terminal, log_to_stderr, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming.settings import Settings


OUR_PACKAGES: Final = frozenset({"streaming", "exporters", "dashboards"})
HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


class Purpose(StrEnum):
    """Purpose of a command: the heading above it in the help."""

    RUN = "Run"
    LOOK = "Look"
    WORK = "Work"
    LEARN = "Learn"
    DEVELOP = "Develop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: its import path, its help, its purpose, and the extra with the packages that it imports."""

    target: str
    help: str
    purpose: Purpose
    extra: str = "export"


_SUBJECTS: Final = {
    "conditions": "Show what is wrong, since when, and which incident explains it: what alerts select.",
    "brokers": "Show brokers: what each leads and holds, and whether it is safe to stop.",
    "topics": "Show topics: the totals of their partitions.",
    "partitions": "Show the unhealthy partitions, worst first; with --all every one.",
    "replicas": "Show the replicas that are behind their leader, longest first; with --all every one.",
    "reassignments": "Show the partitions on the move: what is added and removed, and what is left to copy.",
    "directories": "Show the log directories of brokers: how full they are, and when they will be full.",
    "groups": "Show consumer groups: state, lag, and what is wrong.",
    "transactions": "Show the open transactions: those that hang, then those that are late, then the oldest.",
    "quorum": "Show the members of the metadata quorum, and how far each is behind.",
    "settings": "Show unsafe settings and how to fix them.",
    "metrics": "Show the metrics that agents of brokers export.",
}
COMMANDS: Final[dict[str, Command]] = {
    "run": Command(
        target="exporters.running.command:run",
        help="Monitor a Kafka cluster: collector, Spark job and exporter in one command.",
        purpose=Purpose.RUN,
        extra="all",
    ),
    "collect": Command(
        target="streaming.commands.collect:collect",
        help="Read a Kafka cluster, or a simulated one, and write observations to the bus.",
        purpose=Purpose.RUN,
        extra="collect",
    ),
    "job": Command(
        target="streaming.commands.job:job",
        help="Run the Spark streaming job, from the bus to the Delta tables.",
        purpose=Purpose.RUN,
        extra="job",
    ),
    "export": Command(
        target="exporters.web.command:export",
        help="Serve the Delta tables to Prometheus and as JSON.",
        purpose=Purpose.RUN,
    ),
    "state": Command(
        target="exporters.terminal.subject_commands:state",
        help="Show every cluster in a row, the worst first, and below them the unhealthy partitions.",
        purpose=Purpose.LOOK,
    ),
    "incidents": Command(
        target="exporters.terminal.incidents_command:incidents",
        help="Show incidents: one line per incident, however many partitions it affected.",
        purpose=Purpose.LOOK,
    ),
    "events": Command(
        target="exporters.terminal.events_command:events",
        help="Show replication events with their causes; --follow adds new ones.",
        purpose=Purpose.LOOK,
    ),
    "health": Command(
        target="exporters.terminal.health_command:health",
        help="Show whether clusters are healthy, as an exit code; --wait is a gate for rolling restarts.",
        purpose=Purpose.LOOK,
    ),
    **{
        name: Command(target=f"exporters.terminal.subject_commands:{name}", help=line, purpose=Purpose.LOOK)
        for name, line in _SUBJECTS.items()
    },
    "mcp": Command(
        target="exporters.mcp.command:mcp",
        help="Answer an assistant (Model Context Protocol): what is wrong, what happened, what is safe.",
        purpose=Purpose.LOOK,
        extra="mcp",
    ),
    "maintenance": Command(
        target="streaming.commands.maintenance:maintenance",
        help="Announce planned work on brokers, so that what it causes is not reported as a failure.",
        purpose=Purpose.WORK,
    ),
    "doctor": Command(
        target="streaming.commands.doctor:doctor",
        help="Check a configuration and all that it needs: brokers, permissions, clocks, folders, Java, ports.",
        purpose=Purpose.WORK,
        extra="all",
    ),
    "backup": Command(
        target="streaming.commands.backup:backup",
        help="Copy all tables as they are at one commit; the job may run meanwhile.",
        purpose=Purpose.WORK,
    ),
    "restore": Command(
        target="streaming.commands.backup:restore", help="Bring back all tables from a backup.", purpose=Purpose.WORK
    ),
    "alerts": Command(
        target="streaming.commands.alerts:app",
        help="Send a test notification through Alertmanager.",
        purpose=Purpose.WORK,
    ),
    "demo": Command(
        target="exporters.demo.command:demo",
        help="Run everything on a simulated cluster and show it live.",
        purpose=Purpose.LEARN,
        extra="all",
    ),
    "simulate": Command(
        target="streaming.commands.simulate:simulate",
        help="Run a scenario in the model of a Kafka cluster and print its events with their causes.",
        purpose=Purpose.LEARN,
        extra="all",
    ),
    "explain": Command(
        target="streaming.commands.explain:explain",
        help="Compare popular statements about Kafka's replication with what Kafka does.",
        purpose=Purpose.LEARN,
        extra="all",
    ),
    "sandbox": Command(
        target="deploy.sandbox.command:app",
        help="Run a real Kafka cluster on this machine and inject faults (in a checkout only).",
        purpose=Purpose.LEARN,
        extra="all",
    ),
    "backtest": Command(
        target="exporters.backtest.command:backtest",
        help="Show which alerts would have fired in the recorded past, under any rules.",
        purpose=Purpose.DEVELOP,
    ),
    "tables": Command(
        target="exporters.terminal.tables_command:tables",
        help="Describe the tables, with their sizes and ages.",
        purpose=Purpose.DEVELOP,
    ),
    "dashboards": Command(
        target="dashboards.command:app",
        help="Render the Grafana dashboards and the Prometheus alerts from code.",
        purpose=Purpose.DEVELOP,
        extra="dashboards",
    ),
    "jars": Command(
        target="streaming.commands.jars:app",
        help="Show, download and verify the jars of the Spark job and the sandbox.",
        purpose=Purpose.DEVELOP,
        extra="job",
    ),
}


def load(name: str) -> Any:  # noqa: ANN401 - typer's command type is not public
    """Import one command and return it as a typer command."""
    module, attribute = COMMANDS[name].target.split(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False, context_settings=HELP_OPTIONS)
        single.command(name, help=_paragraphs(target.__doc__ or ""))(target)
        target = single
    command = typer.main.get_command(target)
    for each in with_subcommands(command):
        for parameter in filter(takes_place, each.params):
            parameter.callback = partial(_checked_place, parameter.callback)
    return command


def with_subcommands(command: Any) -> Iterator[Any]:  # noqa: ANN401 - typer's types are not public
    """Yield a command, and those below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from with_subcommands(below)


def _without_markup(command: Any) -> Any:  # noqa: ANN401 - typer's types are not public
    """Return a command whose help is printed as it is: typer takes words in square brackets for markup of rich."""
    for each in with_subcommands(command):
        for one in (each, *each.params):
            for attribute in ("help", "short_help", "epilog"):
                if said := getattr(one, attribute, None):
                    setattr(one, attribute, escape(said))
    return command


def takes_place(parameter: Any) -> bool:  # noqa: ANN401 - typer's types are not public
    """Return whether an option or an argument is a folder or a file, or several."""
    return parameter.type_descriptor.annotation in {Path, list[Path]} or parameter.name == "web_config_file"


def _checked_place(before: Any, context: Any, parameter: Any, value: Any) -> Any:  # noqa: ANN401 - typer's types are not public
    """Refuse a place with a scheme; then do what the option does itself with its value."""
    for place in value if isinstance(value, list) else [value]:
        check_place(parameter.opts[0], str(place or ""))
    return value if before is None else before(context, parameter, value)


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph: a terminal breaks them at its own width."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


def explained(name: str, error: ModuleNotFoundError) -> Exception:
    """Turn a missing package into a message with the pip command; a missing module of isrwatch stays a bug."""
    extra = COMMANDS[name].extra
    package = (error.name or "").partition(".")[0]
    if package in OUR_PACKAGES:
        return error
    if package == "deploy":
        return MissingTool(f"isrwatch {name} runs in a checkout of the project only: run it from there")
    return MissingTool(f"isrwatch {name} needs {package}: pip install 'isrwatch[{extra}]'")


def of_the_system(error: OSError) -> IsrwatchError:
    """Turn what the operating system refuses into a message with the fix: a traceback of ours would not say more."""
    kind = ConfigurationError if isinstance(error, PermissionError) else IsrwatchError
    return kind(sentence_of(error))


class LazyGroup(TyperGroup):
    """A group that imports a command only when it is called."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - passed on to typer
        settings["commands"] = {
            name: TyperCommand(name, help=line.help, rich_help_panel=line.purpose) for name, line in COMMANDS.items()
        }
        super().__init__(**settings)
        _without_markup(self)

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - passed on to typer
        """Run; a usage error is one plain line unless stderr is a terminal."""
        if sys.stderr.isatty():
            return super().main(*args, **settings)
        try:
            code = super().main(*args, **(settings | {"standalone_mode": False}))
        except typer.TyperException as error:
            sentence, context = " ".join(error.format_message().split()), getattr(error, "ctx", None)
            if sentence:  # without a message the help was printed
                text = f"{sentence} (see {context.command_path} --help)" if context else sentence
                Terminal(stderr=True).row(text)
            code = error.exit_code
        sys.exit(code)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's types are not public
        """Import the command that is called."""
        name, command, rest = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name  # typer sets it only after the import, which may fail
        return name, command if name is None else _without_markup(load(name)), rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's types are not public
        """Run the command; print an error for the user as one sentence."""
        try:
            return super().invoke(ctx)
        except (IsrwatchError, ModuleNotFoundError, OSError) as error:
            shown: Exception = error
            if isinstance(error, ModuleNotFoundError):
                shown = explained(ctx.invoked_subcommand, error)
            elif isinstance(error, OSError):
                shown = of_the_system(error)
            if ctx.params["debug"] or not isinstance(shown, IsrwatchError):
                raise
            terminal = Terminal(stderr=True)
            print_wrapped(terminal, Text(printable(str(shown)), style="red"))
            for line in shown.log.splitlines():
                print_wrapped(terminal, line)
            raise typer.Exit(shown.exit_code) from None


def _print_version(value: bool) -> None:
    if value:
        Terminal().row(f"isrwatch {version('isrwatch')}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP_OPTIONS)


@app.callback()
def _options(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="ISRWATCH_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Record every Kafka leader and in-sync-replica change, with its cause, in Delta tables, Prometheus and Grafana.

    Every command reads one configuration, the first there is: --config, $ISRWATCH_CONFIG, ./isrwatch.toml,
    /etc/isrwatch/isrwatch.toml. A variable such as ISRWATCH_TABLES__DIRECTORY overrides the key tables.directory.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the entry point of the console script, which gives no arguments."""
    with ending_safely():
        log_to_stderr(LogLines("%(message)s"))
        app(arguments, prog_name="isrwatch")


# The end of a process that has threads in libraries which Python cannot end.
# Python ends a daemon thread where it takes up its work again. In the middle of delta-rs or of the client of HDFS,
# which are written in Rust, that is a crash (SIGSEGV or SIGABRT: exit codes 139 and 134) after everything was done. So
# a process that still has daemon threads skips the last step, in which Python takes itself apart.


@contextmanager
def ending_safely() -> Iterator[None]:
    """Run a program until its ``SystemExit``, or another exception, ends the process.

    It must be entered before anything else is registered with ``atexit``, so that all of that still runs.
    """
    code = 0

    def end() -> None:
        if any(thread.daemon for thread in threading.enumerate()):
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)

    atexit.register(end)
    try:
        yield
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except BaseException:
        code = 1
        raise


# Options of commands that connect to the clusters of a configuration.


ClusterOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this cluster, where there are several; default: all.")
]
BootstrapServersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        help="Brokers as host:port,host:port; default: cluster.bootstrap_servers.",
    ),
]


def with_bootstrap_servers(every: list[Settings], bootstrap_servers: str | None) -> list[Settings]:
    """Apply ``--bootstrap-server``, which overrides the configuration file.

    Raises:
        ConfigurationError: there are several clusters.
    """
    if bootstrap_servers is None:
        return every
    if len(every) > 1:
        raise ConfigurationError("--bootstrap-server is of one of several clusters: say of which with --cluster")
    return [replace(every[0], cluster=replace(every[0].cluster, bootstrap_servers=bootstrap_servers))]
