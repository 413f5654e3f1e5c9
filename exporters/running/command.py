"""``isrwatch run``: everything that monitors a real cluster, in one command.

Each part is the command that also runs alone: ``collect``, ``job``, ``export``. What is given as an option reaches them
as a variable of the environment that overrides the configuration, so there is one way to configure a part.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from rich.text import Text

from exporters.answers import links
from exporters.read_model.reader import TablesReader
from exporters.running.liveness import local_url
from exporters.running.supervision import Supervisor
from streaming.cluster_settings import each_cluster, filled
from streaming.commands import BootstrapServersOption, ClusterOption
from streaming.commands.doctor import findings_of_clusters, line_of
from streaming.commands.doctor_machine import Status
from streaming.configuration_file import OPTION_HELP, VARIABLE, file_to_read
from streaming.delta.store.place import tables_place
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.runtime.java import find_java
from streaming.terminal import UNWRITABLE, Terminal, print_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.delta.store.place import Place
    from streaming.settings import Settings


T = TypeVar("T")

SECONDS_BETWEEN_CHECKS: Final = 0.2
SECONDS_UNTIL_A_HINT: Final = 90.0
BATCH_ROW: Final = "batch at="
READ: Final = frozenset({"metadata log", "samples", "broker metrics"})
"""Checks that are printed even if they are ok: they say what is read."""


def run(
    *,
    bootstrap_servers: BootstrapServersOption = None,
    command_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Client properties, as Kafka's own tools take them; cluster.client_file."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for everything that is stored, or the URL of the tables."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
    cluster: ClusterOption = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port of the pages and /metrics; default: export.listen, 127.0.0.1:9308.")
    ] = None,
) -> None:
    """Monitor a Kafka cluster: start collector, Spark job and exporter, and keep them running, until Ctrl-C.

    It prints what it can and cannot read of the cluster, and which permissions are missing. A process that exits or
    hangs is restarted. Nothing is lost or counted twice, and the next start continues where this one stopped.

    Examples:
    isrwatch run --bootstrap-server broker-1:9092

    isrwatch run --bootstrap-server broker-1:9092 --command-config client.properties --data /var/lib/isrwatch

    isrwatch run --config isrwatch.toml
    """
    os.environ.update(overrides(config, bootstrap_servers, command_config, data, listen))
    every = filled(each_cluster(None, cluster))
    settings, tables = every[0], tables_place(every[0])
    _check_servers(every)
    java = find_java()
    say(f"Java {java.version} ({java.origin})")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends it like Ctrl-C
    commands = {"collect": [] if cluster is None else ["--cluster", cluster], "job": [], "export": []}
    try:
        with Supervisor(commands, pass_on, warn, alive=alive_urls(settings)) as parts:
            if watched(lambda: print_findings_of(every), parts):
                warn("it runs all the same, and reads what it can; isrwatch doctor checks again")
            watched(lambda: _wait(tables), parts)
            print_next_steps(every, tables)
            while True:
                parts.check()
                time.sleep(SECONDS_BETWEEN_CHECKS)
    except KeyboardInterrupt:
        say("stopped; the next start continues here")


def overrides(
    config: Path | None,
    bootstrap_servers: str | None,
    command_config: Path | None,
    data: str | None,
    listen: str | None,
) -> dict[str, str]:
    """Return the variables of the environment that say the same as the options, for every part."""
    file = file_to_read(config, os.environ)
    given = {
        VARIABLE: None if file is None else str(file.absolute()),
        "ISRWATCH_CLUSTER__BOOTSTRAP_SERVERS": bootstrap_servers,
        "ISRWATCH_CLUSTER__CLIENT_FILE": None if command_config is None else str(command_config.absolute()),
        "ISRWATCH_EXPORT__LISTEN": listen,
        **_places(data),
    }
    return {name: value for name, value in given.items() if value is not None}


def _places(data: str | None) -> Mapping[str, str | None]:
    if data is None:
        return {}
    if "://" in data:
        return {"ISRWATCH_TABLES__DIRECTORY": data}
    folder = Path(data).absolute()
    return {
        "ISRWATCH_BUS__DIRECTORY": str(folder / "bus"),
        "ISRWATCH_TABLES__DIRECTORY": str(folder / "tables"),
        "ISRWATCH_JOB__CHECKPOINT": str(folder / "checkpoint"),
    }


def _check_servers(every: list[Settings]) -> None:
    if not all(settings.cluster.bootstrap_servers for settings in every):
        raise ConfigurationError("which cluster? Name a broker of it: isrwatch run --bootstrap-server broker-1:9092")


def alive_urls(settings: Settings) -> dict[str, str]:
    """Return the URL at which each part says that it hangs; "" for a part that listens nowhere."""
    collect, job, export = settings.collect, settings.job, settings.export
    return {
        "collect": local_url(collect.listen, collect.web_config_file, "/-/alive"),
        "job": local_url(job.listen, job.web_config_file, "/-/alive"),
        "export": local_url(export.listen, export.web_config_file, "/-/healthy"),
    }


def watched(work: Callable[[], T], parts: Supervisor) -> T:
    """Do work that may wait for a cluster, in a thread, and watch the parts meanwhile; raises what it raises."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised below
            outcome.set_exception(error)

    Thread(target=run, name="checks", daemon=True).start()
    while not outcome.done():
        parts.check()
        time.sleep(SECONDS_BETWEEN_CHECKS)
    return outcome.result()


def print_findings_of(every: list[Settings]) -> bool:
    """Print what can be read of the clusters, and what cannot, with the fix; return whether there is a problem."""
    has_problem = False
    for finding in findings_of_clusters(every):
        has_problem |= finding.status is Status.PROBLEM
        if finding.status in {Status.PROBLEM, Status.WARNING} or finding.check in READ:
            print_log(line_of(finding))
    return has_problem


def _wait(tables: Place) -> None:
    """Wait until the first report of a cluster is in the tables, and say what to look at if that takes long."""
    reader, hint_at = TablesReader(tables), time.monotonic() + SECONDS_UNTIL_A_HINT
    while not _partitions(reader):
        if time.monotonic() > hint_at:
            hint_at = float("inf")
            warn("no report of the cluster is in the tables yet: the lines above say why, or isrwatch doctor does")
        time.sleep(SECONDS_BETWEEN_CHECKS)


def _partitions(reader: TablesReader) -> bool:
    """Return whether the tables have a cluster with its brokers."""
    try:
        snapshot = reader.refresh()
    except IsrwatchError:  # there are no tables yet
        return False
    return any(cluster.known_brokers() for cluster in snapshot.clusters.values())


def print_next_steps(every: list[Settings], tables: Place) -> None:
    """Print which pages there are, where the tables are, and what to do next."""
    console, url = Terminal(stderr=True), page_url(every[0])
    pages = {links.FLEET: "all clusters, the worst first"}
    pages |= {links.cluster(each.cluster.name): "its brokers, topics and groups" for each in every}
    pages |= {links.INCIDENTS: "what happened, who caused it, what to do first", links.RUNBOOK: "each alert"}
    console.print()
    for path, content in pages.items():
        address = (url + path.removeprefix("/"), "bold")
        console.print(Text.assemble("page    ", address, (f"   # {content}", "dim")), soft_wrap=True)
    console.print(Text(f"tables  {tables}\n"), soft_wrap=True)
    metrics = url + every[0].export.telemetry_path.removeprefix("/")
    steps = {
        "what is wrong, what each broker holds, what may be stopped": f"state --server {url}",
        f"alerts and boards; let Prometheus scrape {metrics}": "dashboards render --help",
    }
    print_steps(console, steps)
    console.print()


def page_url(settings: Settings) -> str:
    """Return the address of the first page, for a browser of this machine unless ``export.url`` names another one."""
    export = settings.export
    return export.url.rstrip("/") + "/" if export.url else local_url(export.listen, export.web_config_file, "/")


def pass_on(_name: str, line: str) -> None:
    """Print a line of a part as it is; on a terminal not the rows of batches, which are for programs."""
    console = Terminal(stderr=True)
    if not (console.is_terminal and BATCH_ROW in line):
        with suppress(*UNWRITABLE):  # or its pipe is not read any more, and the part waits for ever
            console.row(line)


def say(line: str) -> None:
    """Print a line on stderr."""
    print_log(Text.assemble(("isrwatch run: ", "dim"), line))


def warn(line: str) -> None:
    """Print a problem on stderr."""
    print_log(Text.assemble(("isrwatch run: ", "dim"), (line, "red")))


def print_steps(console: Terminal, steps: Mapping[str, str]) -> None:
    """Print the arguments of ``isrwatch`` for each purpose."""
    # In a venv that is not activated, the shell finds only the full path.
    command = "isrwatch" if shutil.which("isrwatch") else os.path.relpath(Path(sys.executable).with_name("isrwatch"))
    for purpose, arguments in steps.items():
        console.print(Text.assemble(f"  {command} {arguments}", (f"   # {purpose}", "dim")), soft_wrap=True)
