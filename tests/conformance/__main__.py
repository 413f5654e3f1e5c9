"""``python -m tests.conformance``: checks whether the model's controller could have written a metadata log.

Trace validation as TLA+ knows it: every step of a real trace must be a step of the specification. The specification
is ``streaming.model.controller``; the trace is the log of a real cluster, of the model itself, or of a recording.
The check is pure, records in, actions out: ``checker`` is its interface, ``steps`` the table of actions that may change
a partition, ``changes`` and ``records`` explain the records by them, ``replay`` keeps the controller's state, and
``quirks`` says what Kafka does and the model does not. ``logs`` reads the files of a controller or a running cluster.
"""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming.cluster_settings import one_cluster
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.settings import with_secrets
from streaming.word_wrap import print_wrapped
from tests.conformance.checker import Checker
from tests.conformance.logs import LiveLog, LogFiles, Start
from tests.conformance.output import DeviationCount, DeviationsAsJson, DeviationsAsText, ProgressLine
from tests.conformance.replay import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from streaming.settings import ClusterSettings
    from tests.conformance.logs import MetadataLog
    from tests.conformance.output import Output

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


@app.command()
def conform(  # noqa: PLR0913 - options
    log: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LOG]...", help="A __cluster_metadata-0 directory, or its .log files in any order."),
    ] = None,
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Running cluster: which one, where there are several.")
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Check a running cluster: brokers as host:port,host:port.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.001, metavar="SECONDS", help="Running cluster: stop after this time.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Running cluster: until Ctrl-C; default: to the end of the log.")
    ] = False,
    min_insync_replicas: Annotated[
        int | None, typer.Option(min=1, help="Static min.insync.replicas of the controllers; default: any.")
    ] = None,
    unclean_leader_election: Annotated[
        bool | None,
        typer.Option("--unclean-leader-election/--no-unclean-leader-election", help="The same for unclean elections."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="text, or json: one object per line.")] = Format.TEXT,
) -> None:
    """Check a KRaft metadata log, record by record, against the model of Kafka's controller.

    Every record must be one that the model's controller would have written in the state before it: who leads, who is
    in the ISR, which epochs are raised. Each deviation is one line, with its offset, its time and what the model would
    have written instead; the check then continues from the state in the log.

    Exit code: 0 the log conforms, 1 it deviates, 2 it could not be read.

    Example: python -m tests.conformance /var/lib/kafka/metadata/__cluster_metadata-0

    Example: python -m tests.conformance --bootstrap-servers broker-1:9092 --for 60
    """
    try:
        _refuse_both(log, live=bool(bootstrap_servers) or bool(cluster) or follow or seconds is not None)
        running = None if log else _running_cluster(config, cluster, bootstrap_servers)
        is_over = _until(seconds, follow=follow)
        tally = _check(_opened(log, running, is_over), output, min_insync_replicas, unclean_leader_election)
    except IsrwatchError as error:
        print_wrapped(Console(stderr=True), Text(str(error), style="red"))
        raise typer.Exit(error.exit_code) from None
    if tally.deviations:
        raise typer.Exit(1)


def _refuse_both(log: list[Path] | None, *, live: bool) -> None:
    """Files or a cluster, not both."""
    if log and live:
        raise ConfigurationError("a LOG is read to its end: --bootstrap-servers, --for and --follow are for a cluster")


def _running_cluster(config: Path | None, name: str | None, bootstrap_servers: str | None) -> ClusterSettings:
    """Let the option win over the configuration file."""
    settings = one_cluster(config, name)
    if bootstrap_servers is not None:
        settings = replace(settings, cluster=replace(settings.cluster, bootstrap_servers=bootstrap_servers))
    if not settings.cluster.bootstrap_servers:
        raise ConfigurationError("give a LOG to check, or a running cluster with --bootstrap-servers")
    return with_secrets(settings).cluster


def _until(seconds: float | None, *, follow: bool) -> Callable[[bool], bool]:
    """Decide when to stop reading a running cluster: at its end, after so long, or at Ctrl-C."""
    deadline = None if seconds is None else time.monotonic() + seconds
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    def is_over(is_caught_up: bool) -> bool:  # noqa: FBT001 - a callback
        if stopped:
            return True
        if deadline is not None:
            return time.monotonic() >= deadline
        return is_caught_up and not follow

    if follow or deadline is not None:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
    return is_over


def _opened(log: list[Path] | None, running: ClusterSettings | None, is_over: Callable[[bool], bool]) -> MetadataLog:
    return LogFiles(log or [], _say) if running is None else LiveLog(running, is_over=is_over, report=_say)


def _check(
    log: MetadataLog,
    output: Format,
    min_isr: int | None,
    unclean: bool | None,  # noqa: FBT001 - as the option
) -> DeviationCount:
    """Check every batch, print every deviation; after each new start of the log begin with a new checker."""
    printer: Output = DeviationsAsJson() if output is Format.JSON else DeviationsAsText(_say)
    tally, progress, checker = DeviationCount(), ProgressLine(_say), Checker()
    for item in log:
        if isinstance(item, Start):
            checker = Checker(min_insync_replicas=min_isr, unclean_leader_election=unclean)
            _restore(checker, item)
            tally.begin(item)
            printer.begin(item)
            continue
        explanation = checker.explain(item)
        tally.count(item, explanation)
        for deviation in explanation.deviations:
            printer.deviation(item.timestamp, deviation)
        progress.show(tally, log.share)
    printer.end(tally)
    return tally


def _restore(checker: Checker, start: Start) -> None:
    try:
        checker.restore(start.snapshot)
    except Refused as why:
        raise ConfigurationError(f"the snapshot at offset {start.offset} contradicts itself: {why}") from None


def _say(line: str) -> None:
    """Write a line that is no deviation to stderr, so that a pipe contains deviations only."""
    print_wrapped(Console(stderr=True), Text.assemble(("conformance: ", "dim"), line))


if __name__ == "__main__":
    app(prog_name="python -m tests.conformance")
