"""``isrwatch state``, and a command for each subject: ``isrwatch brokers 3``, ``isrwatch groups payments``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from exporters.answers.answer import Answer, Question
from exporters.answers.subject import Limits, Tables
from exporters.answers.subjects import ANSWERS, SUBJECTS
from exporters.read_model.reader import micros_now
from exporters.terminal.answer_view import output_for, print_answer, raise_unreadable
from exporters.terminal.options import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    LocalOption,
    OutputOption,
    ServerOption,
    TablesOption,
    WatchOption,
    checked,
    folder_of,
    moment_of,
    server_of,
)
from exporters.terminal.output import RowFormat, until_closed
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.escapes import printable
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from exporters.answers.server import Server
    from exporters.answers.subject import Filter, Subject
    from streaming.delta.store.place import Place

WATCH_SECONDS: Final = 2.0
EXAMPLES: Final[Mapping[str, str]] = {
    "brokers": "isrwatch brokers 3",
    "topics": "isrwatch topics 'orders-*'",
    "partitions": "isrwatch partitions orders --all",
    "replicas": "isrwatch replicas --broker 3",
    "reassignments": "isrwatch reassignments --watch",
    "groups": "isrwatch groups payments",
    "directories": "isrwatch directories 3 -o wide",
    "quorum": "isrwatch quorum --cluster prod",
    "transactions": "isrwatch transactions 'payments-*'",
    "settings": "isrwatch settings 'orders-*'",
    "metrics": "isrwatch metrics '*idle*' --broker 3",
}
_WITH_HEALTHY: Final = frozenset({"partitions", "replicas"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where answers come from: an exporter, or else the tables of a folder."""

    server: Server | None
    folder: Place | None
    config_file: Path | None

    @classmethod
    def of(cls, server: str | None, tables: str | None, config_file: Path | None) -> Source:
        """Choose by the options, the variable ISRWATCH_SERVER and the configuration.

        Raises:
            ConfigurationError: both are given, or there are no tables.
        """
        asked = server_of(server, tables, config_file)
        return cls(asked, None if asked else folder_of(tables, config_file), config_file)

    def ask(self, subject: str, question: Question) -> Answer:
        """Ask; the one place where it matters who answers."""
        if self.server is not None:
            return self.server.answer(subject, question)
        return ANSWERS[subject].answer(self.tables(), question)

    def tables(self) -> Tables:
        """Return the tables, where no server is asked."""
        if self.folder is None:
            raise AssertionError("a server is asked")
        return Tables(folder=self.folder, limits=Limits.of(self.config_file), now=micros_now())


def state(  # noqa: PLR0913 - one parameter per option
    *,
    everything: Annotated[bool, typer.Option("--all", help="Include what is healthy.")] = False,
    cluster: ClusterOption = None,
    as_of: AsOfOption = None,
    watch: WatchOption = False,
    row_format: OutputOption = None,
    local: LocalOption = False,
    server: ServerOption = None,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show every cluster in a row, the worst first, and below them the unhealthy partitions.

    Stale data is marked STALE with its age; an unknown value is "?".

    Example: isrwatch state --cluster 'prod-*' --watch
    """
    source = Source.of(server, tables, config_file)
    question = Question(tuple(cluster or ()), {}, everything, moment_of(as_of, local=local))

    def show(console: Terminal) -> None:
        answer = source.ask("clusters", question)
        also = source.ask("partitions", question) if row_format is not RowFormat.CSV else None
        print_answer(output_for(console, row_format, answer, local=local), "clusters", answer, also=also)
        raise_unreadable(answer, *([also] if also else []))

    repeated(show, watch=watch)


def _answered(subject: Subject, given: Mapping[str, Any]) -> None:
    """Run the command of a subject."""
    filters = {each.name: tuple(given[each.name]) for each in subject.filters if given[each.name]}
    at = moment_of(given.get("as_of"), local=given["local"])
    question = Question(tuple(given["cluster"] or ()), filters, given.get("everything", False), at)
    source = Source.of(given["server"], given["tables"], given["config_file"])

    def show(console: Terminal) -> None:
        answer = source.ask(subject.name, question)
        print_answer(output_for(console, given["row_format"], answer, local=given["local"]), subject.name, answer)
        raise_unreadable(answer)

    repeated(show, watch=given["watch"])


def repeated(show: Callable[[Terminal], None], *, watch: bool) -> None:
    """Show once; or again and again until Ctrl-C, also after an error, which may be over at the next look.

    Raises:
        ConfigurationError: at the first look, what is asked for is wrong: no later look would help.
    """
    with until_closed():
        if not watch:
            show(Terminal())
            return
        looks = 0
        while True:
            console = Terminal()
            if console.is_terminal:
                console.clear()
            try:
                show(console)
            except IsrwatchError as error:
                if isinstance(error, ConfigurationError) and not looks:
                    raise
                print_wrapped(console, Text(printable(str(error)), style="red"))
            looks += 1
            console.file.flush()
            time.sleep(WATCH_SECONDS)


def command_of(subject: Subject) -> Callable[..., None]:
    """Return the function of a command: its options are those of the subject."""
    own, *others = subject.filters
    everything = Annotated[bool, typer.Option("--all", help="Include what is healthy.")]
    annotated: dict[str, Any] = {
        own.name: Annotated[list[str] | None, typer.Argument(metavar="PATTERN", help=own.help, callback=checked)],
        **{each.name: _option(each) for each in others},
        **({"everything": everything} if subject.name in _WITH_HEALTHY else {}),
        "cluster": ClusterOption,
        **({"as_of": AsOfOption} if subject.has_history else {}),
        "watch": WatchOption,
        "row_format": OutputOption,
        "local": LocalOption,
        "server": ServerOption,
        "tables": TablesOption,
        "config_file": ConfigOption,
    }
    defaults = {"everything": False, "watch": False, "local": False}

    def command(**given: Any) -> None:  # noqa: ANN401 - by the signature below
        _answered(subject, given)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=annotation)
        for name, annotation in annotated.items()
    ]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__doc__ = f"{subject.help}\n\n    Example: {EXAMPLES[subject.name]}\n    "
    return command


def _option(of: Filter) -> Any:  # noqa: ANN401 - an annotation
    help_of_it = f"{of.help.rstrip('.')}; may be repeated."
    return Annotated[
        list[str] | None, typer.Option(f"--{of.name}", metavar="PATTERN", help=help_of_it, callback=checked)
    ]


def __getattr__(name: str) -> Callable[..., None]:
    """Return the command of a subject, by its name: what the command line imports."""
    if name in SUBJECTS:
        return command_of(SUBJECTS[name])
    raise AttributeError(name)
