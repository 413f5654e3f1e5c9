"""``isrwatch state``, and a command for each subject: ``isrwatch brokers 3``, ``isrwatch groups payments``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from exporters.answers.answer import Question
from exporters.answers.source import AnswerSource
from exporters.answers.subjects import SUBJECTS
from exporters.terminal import options
from exporters.terminal.answer_view import output_for, print_answer, raise_unreadable
from exporters.terminal.output import RowFormat, until_closed
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.escapes import printable
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from exporters.answers.subject import ClusterSubject, NameFilter

WATCH_SECONDS: Final = 2.0
EXAMPLES: Final[Mapping[str, str]] = {
    "conditions": "isrwatch conditions 'group_*'",
    "brokers": "isrwatch brokers 3",
    "topics": "isrwatch topics 'orders-*'",
    "partitions": "isrwatch partitions orders --all",
    "replicas": "isrwatch replicas --broker 3",
    "reassignments": "isrwatch reassignments --watch",
    "groups": "isrwatch groups payments",
    "directories": "isrwatch directories 3",
    "quorum": "isrwatch quorum --cluster prod",
    "transactions": "isrwatch transactions 'payments-*'",
    "settings": "isrwatch settings 'orders-*'",
    "metrics": "isrwatch metrics '*idle*' --broker 3",
}
_OWN_OPTION: Final = "own"
"""The parameter of the option that has the name of the argument: for names that begin with a hyphen."""
_WITH_HEALTHY: Final = frozenset({"partitions", "replicas"})


def state(  # noqa: PLR0913 - one parameter per option
    *,
    everything: Annotated[bool, typer.Option("--all", help="Include what is healthy.")] = False,
    cluster: options.ClusterOption = None,
    as_of: options.AsOfOption = None,
    watch: options.WatchOption = False,
    row_format: options.OutputOption = None,
    local: options.LocalOption = False,
    server: options.ServerOption = None,
    tables: options.TablesOption = None,
    config_file: options.ConfigOption = None,
) -> None:
    """Show one row per cluster, worst first, and below them the unhealthy partitions.

    Stale data is marked STALE with its age; an unknown value is "?".

    Example: isrwatch state --cluster 'prod-*' --watch
    """
    source = AnswerSource.of(server, tables, config_file)
    question = Question(tuple(cluster or ()), {}, everything, options.moment_of(as_of, local=local))

    def show(console: Terminal) -> None:
        answer = source.ask("clusters", question)
        also = source.ask("partitions", question) if row_format is not RowFormat.CSV else None
        print_answer(output_for(console, row_format, answer, local=local), "clusters", answer, also=also)
        raise_unreadable(answer, *([also] if also else []))

    repeated(show, watch=watch)


def _answered(subject: ClusterSubject, given: Mapping[str, Any]) -> None:
    """Run the command of a subject."""
    patterns = {each.name: tuple(given[each.name] or ()) for each in subject.filters}
    patterns[subject.filters[0].name] += tuple(given[_OWN_OPTION] or ())
    filters = {name: chosen for name, chosen in patterns.items() if chosen}
    at = options.moment_of(given.get("as_of"), local=given["local"])
    question = Question(tuple(given["cluster"] or ()), filters, given.get("everything", False), at)
    source = AnswerSource.of(given["server"], given["tables"], given["config_file"])

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


def command_of(subject: ClusterSubject) -> Callable[..., None]:
    """Return the function of a command: its options are those of the subject."""
    own, *others = subject.filters
    everything = Annotated[bool, typer.Option("--all", help="Include what is healthy.")]
    annotated: dict[str, Any] = {
        own.name: Annotated[
            list[str] | None, typer.Argument(metavar="PATTERN", help=own.help, callback=options.checked)
        ],
        **{each.name if each in others else _OWN_OPTION: _option(each) for each in subject.filters},
        **({"everything": everything} if subject.name in _WITH_HEALTHY else {}),
        "cluster": options.ClusterOption,
        **({"as_of": options.AsOfOption} if subject.has_history else {}),
        "watch": options.WatchOption,
        "row_format": options.OutputOption,
        "local": options.LocalOption,
        "server": options.ServerOption,
        "tables": options.TablesOption,
        "config_file": options.ConfigOption,
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


def _option(of: NameFilter) -> Any:  # noqa: ANN401 - an annotation
    help_of_it = f"{of.help.rstrip('.')}; may be repeated."
    return Annotated[
        list[str] | None, typer.Option(f"--{of.name}", metavar="PATTERN", help=help_of_it, callback=options.checked)
    ]


def __getattr__(name: str) -> Callable[..., None]:
    """Return the command of a subject, by its name: what the command line imports."""
    if name in SUBJECTS:
        return command_of(SUBJECTS[name])
    raise AttributeError(name)
