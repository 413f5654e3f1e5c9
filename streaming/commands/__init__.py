"""The command line: ``isrwatch COMMAND``.

A command is loaded only when it is called, so ``isrwatch --help`` imports no room, and a machine that only exports
needs neither Spark nor Java. This file knows names and one-line helps, nothing of what the commands do.

An error that is meant for the user is one red sentence and an exit code: 2 for what the user wrote (options,
configuration), 1 for everything else. ``--debug`` adds the traceback.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from streaming.errors import ConfigurationError, IsrwatchError, MissingTool

OUR_PACKAGES: Final = frozenset({"streaming", "exporters", "dashboards"})
HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line of the table: where the command lives, and which extra brings what it imports."""

    target: str
    help: str
    extra: str


COMMANDS: Final[dict[str, Command]] = {
    "demo": Command(
        target="streaming.commands.demo:demo",
        help="Run everything on a simulated cluster and watch it live.",
        extra="all",
    ),
    "collect": Command(
        target="streaming.commands.collect:collect",
        help="Read a Kafka cluster (or simulate one) and write what it sees to the bus.",
        extra="collect",
    ),
    "job": Command(
        target="streaming.commands.job:job",
        help="Run the Spark streaming job: bus in, Delta tables out.",
        extra="job",
    ),
    "export": Command(
        target="exporters.command:export",
        help="Serve the Delta tables to Prometheus, and as JSON.",
        extra="export",
    ),
    "events": Command(
        target="exporters.history.command:events",
        help="What happened, and why: the recorded events, and those to come.",
        extra="export",
    ),
    "state": Command(
        target="exporters.history.state_command:state",
        help="How partitions, brokers, topics and groups are, or were.",
        extra="export",
    ),
    "incidents": Command(
        target="exporters.history.incidents_command:incidents",
        help="What went wrong: one line a thing that happened, however much it touched.",
        extra="export",
    ),
    "tables": Command(
        target="exporters.history.tables_command:tables",
        help="What the tables mean, and how large and how old they are.",
        extra="export",
    ),
    "simulate": Command(
        target="streaming.commands.simulate:simulate",
        help="Play a scenario in the model of a cluster: what happens, and why.",
        extra="all",
    ),
    "explain": Command(
        target="streaming.commands.explain:explain",
        help="What people are told about Kafka's replication, and what Kafka does.",
        extra="all",
    ),
    "dashboards": Command(
        target="dashboards.command:app",
        help="Render the Grafana dashboard and the Prometheus alerts from code.",
        extra="dashboards",
    ),
    "jars": Command(
        target="streaming.commands.jars:app",
        help="Show, fetch and verify the jars of the Spark job and the sandbox.",
        extra="job",
    ),
    "sandbox": Command(
        target="deploy.sandbox.command:app",
        help="Start a real Kafka cluster on this machine, and break it (in a checkout).",
        extra="all",
    ),
}


def load(name: str) -> Any:  # noqa: ANN401 - typer's command type is not public
    """Import one command and give it in typer's own form."""
    module, attribute = COMMANDS[name].target.split(":")
    target = getattr(importlib.import_module(module), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    single = typer.Typer(add_completion=False, context_settings=HELP_OPTIONS)
    single.command(name)(target)
    return typer.main.get_command(single)


def explained(name: str, error: ModuleNotFoundError) -> Exception:
    """Turn a missing package into the pip command that brings it; a missing file of our own stays a bug."""
    extra = COMMANDS[name].extra
    package = (error.name or "").partition(".")[0]
    if package in OUR_PACKAGES:
        return error
    if package == "deploy":
        return MissingTool(f"isrwatch {name} runs in a checkout of the project only: call it from there")
    return MissingTool(f"isrwatch {name} needs {package}: pip install 'isrwatch[{extra}]'")


class LazyGroup(TyperGroup):
    """A group whose commands are names until one is called."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - handed on to typer
        settings["commands"] = {name: TyperCommand(name, help=line.help) for name, line in COMMANDS.items()}
        super().__init__(**settings)

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - handed on to typer
        """Run; a wrong usage is one plain line where no terminal shows typer's box."""
        if sys.stderr.isatty():
            return super().main(*args, **settings)
        try:
            code = super().main(*args, **(settings | {"standalone_mode": False}))
        except typer.TyperException as wrong:
            sentence, context = " ".join(wrong.format_message().split()), getattr(wrong, "ctx", None)
            if sentence:  # without one, the help was printed instead
                typer.echo(f"{sentence} (see {context.command_path} --help)" if context else sentence, err=True)
            code = wrong.exit_code
        sys.exit(code)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's types are not public
        """Swap the name for the command, now that it is called."""
        name, command, rest = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name  # typer says so only after the import, which is what may fail
        return name, command if name is None else load(name), rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's types are not public
        """Run the command; tell a user's error in one sentence."""
        try:
            return super().invoke(ctx)
        except (IsrwatchError, ModuleNotFoundError) as error:
            told = explained(ctx.invoked_subcommand, error) if isinstance(error, ModuleNotFoundError) else error
            if ctx.params["debug"] or not isinstance(told, IsrwatchError):
                raise
            sentence, line_end, log = str(told).partition("\n")
            Console(stderr=True).print(Text.assemble((sentence, "red"), line_end, log), soft_wrap=True)
            raise typer.Exit(2 if isinstance(told, ConfigurationError) else 1) from None


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"isrwatch {version('isrwatch')}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)


@app.callback()
def _options(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="ISRWATCH_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Every Kafka leader and in-sync-replica change, with its cause, in Delta tables, Prometheus and Grafana."""


def main() -> None:
    """Run the console script."""
    app(prog_name="isrwatch")
