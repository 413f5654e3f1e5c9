"""``isrwatch doctor``: check a configuration, and everything that it needs, before or while isrwatch runs."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from streaming.cluster_settings import each_cluster, filled
from streaming.commands import BootstrapServersOption, ClusterOption, with_bootstrap_servers
from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, Finding, Status, numbered
from streaming.configuration_file import OPTION_HELP, file_to_read, overriding
from streaming.errors import IsrwatchError, sentence_of
from streaming.escapes import json_document
from streaming.secret_values import written_secrets
from streaming.terminal import AnswerFormat, Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streaming.settings import Settings

_STYLE: Final = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red", Status.SKIPPED: "dim"}


def doctor(
    *,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
    cluster: ClusterOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Check that this Prometheus has isrwatch's rules and scrapes it.")
    ] = "",
    output: Annotated[
        AnswerFormat, typer.Option("--output", "-o", metavar="FORMAT", help="table or json: one document.")
    ] = AnswerFormat.TABLE,
) -> None:
    """Check a configuration and what it needs: brokers, permissions, clocks, bus, folders, tables, Java, ports, TLS.

    It says whether the metadata log would be read or the brokers polled, and what is lost by polling them.

    Every finding is one sentence, with the fix. It changes nothing, and prints no password. The exit code is 1 if there
    is a problem; warnings do not count.

    Examples:
    isrwatch doctor --config isrwatch.toml

    isrwatch doctor --bootstrap-server broker-1:9092

    isrwatch doctor --config isrwatch.toml --prometheus http://prometheus:9090

    isrwatch doctor --config isrwatch.toml -o json | jq .findings
    """
    every = with_bootstrap_servers(each_cluster(config, cluster), bootstrap_servers)
    file = file_to_read(config, os.environ)
    checked = chain(read_from(file, os.environ), secrets(every, file), findings(filled(every), prometheus))
    worst = _print_json(checked) if output is AnswerFormat.JSON else print_findings(checked)
    if worst:
        raise typer.Exit(1)


def _print_json(checked: Iterable[Finding]) -> bool:
    """Print each finding as it comes; return whether there is a problem."""
    problems: list[Finding] = []

    def documents() -> Iterator[dict[str, Any]]:
        for finding in checked:
            problems.extend([finding] if finding.status is Status.PROBLEM else [])
            yield asdict(finding)

    Terminal().document(json_document("findings", documents()))
    return bool(problems)


def line_of(finding: Finding) -> Text:
    """Return the line of a finding."""
    status = Text(f"{finding.status:8}", _STYLE[finding.status])
    about = f"{finding.cluster}: " if finding.cluster else ""
    return Text.assemble(status, f"{finding.check:15}", (about, "bold"), finding.sentence)


def print_findings(checked: Iterable[Finding]) -> bool:
    """Print findings as they come, then their sum; return whether one is a problem."""
    console = Terminal()
    counts = dict.fromkeys(Status, 0)
    for finding in checked:
        counts[finding.status] += 1
        print_wrapped(console, line_of(finding))
    problems, warnings = numbered(counts[Status.PROBLEM], "problem"), numbered(counts[Status.WARNING], "warning")
    console.print(f"{problems}, {warnings}, {counts[Status.OK]} ok")
    return counts[Status.PROBLEM] > 0


# Checks of ``isrwatch doctor``: each gives findings, one sentence each, with the fix where there is one.
#
# Nothing is changed: no folder is created, nothing is downloaded, no offset or position is stored. No sentence holds a
# password: addresses are printed without a login, and properties of clients are not printed.


if TYPE_CHECKING:
    Check = Callable[[Settings], Iterator[tuple[Status, str]]]

_OF_OTHERS: Final = 0o044


def findings(every: Sequence[Settings], prometheus: str = "") -> Iterator[Finding]:
    """Run the checks of each cluster, then those of this machine, then those of a Prometheus if a URL is given."""
    yield from findings_of_clusters(every)
    if every[0].bus.kafka.bootstrap_servers:
        yield from _run(every[0], {"bus": _found_by("doctor_bus", "kafka_bus", lambda _: [every])})
    yield from _run(every[0], CHECKS_OF_THE_MACHINE)
    if prometheus:
        of_url = _found_by("doctor_prometheus", "checks_of", lambda settings: [prometheus, settings.alerts])
        yield from _run(every[0], {"prometheus": of_url})


def findings_of_clusters(every: Sequence[Settings]) -> Iterator[Finding]:
    """Run the checks of each cluster, then whether each is another one."""
    answering = []
    for settings in every:
        name = settings.cluster.name if len(every) > 1 else ""
        is_reached = True
        for finding in _run(settings, CHECKS):
            is_reached &= not (finding.check == "brokers" and finding.status is Status.PROBLEM)
            yield replace(finding, cluster=name)
        answering += [settings] if is_reached else []
    if len(answering) > 1:
        from streaming.commands.doctor_cluster import read_twice

        for name, sentence in read_twice(answering).items():
            yield Finding(check="brokers", status=Status.PROBLEM, sentence=sentence, cluster=name)


def _run(settings: Settings, checks: Mapping[str, Check]) -> Iterator[Finding]:
    """Run some checks; what ends one in an error is a problem of that check alone."""
    is_reached = True
    for name, check in checks.items():
        if name in _NEEDS_A_BROKER and not is_reached:
            yield Finding(check=name, status=Status.SKIPPED, sentence="no broker can be reached: see above")
            continue
        try:
            for status, sentence in check(settings):
                is_reached &= not (name == "brokers" and status is Status.PROBLEM)
                yield Finding(check=name, status=status, sentence=sentence)
        except ModuleNotFoundError as missing:
            sentence = f"{missing.name} is not installed: pip install 'isrwatch[all]' if this machine is to do that"
            yield Finding(check=name, status=Status.SKIPPED, sentence=sentence)
        except (IsrwatchError, OSError) as error:
            is_reached &= name != "brokers"
            sentence = sentence_of(error) if isinstance(error, OSError) else str(error)
            yield Finding(check=name, status=Status.PROBLEM, sentence=sentence)


def read_from(file: Path | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Say which file is read, and which variables override it: a key elsewhere has no effect."""
    variables = overriding(environment)
    source = "no file, only defaults" if file is None else f"{file}"
    sentence = f"{source}, and {', '.join(variables)}" if variables else source
    yield Finding(check="configuration", status=Status.OK, sentence=sentence)


def secrets(every: Sequence[Settings], config: Path | None) -> Iterator[Finding]:
    """Check that no other user may read what the configuration file holds, before its values are filled in."""
    written = list(dict.fromkeys(key for settings in every for key in written_secrets(settings)))
    if config is None or not written:
        yield Finding(check="secrets", status=Status.OK, sentence="no secret is written in the configuration")
    elif (mode := config.stat().st_mode) & _OF_OTHERS:
        sentence = (
            f"{config} holds {', '.join(written)} and may be read by others ({mode & 0o777:o}): chmod 600 {config}, or "
            'write "${NAME}" for a variable of the environment, "file:PATH" for a file'
        )
        yield Finding(check="secrets", status=Status.WARNING, sentence=sentence)
    else:
        sentence = f"{config} holds {', '.join(written)}, and only its owner may read it"
        yield Finding(check="secrets", status=Status.OK, sentence=sentence)


def _found_by(module: str, name: str, arguments: Callable[[Settings], list[Any]] = lambda each: [each]) -> Check:
    """Return a check that is imported when it runs: what it needs may not be installed."""

    def check(settings: Settings) -> Iterator[tuple[Status, str]]:
        find: Callable[..., Iterator[tuple[Status, str]]]
        find = getattr(import_module(f"streaming.commands.{module}"), name)
        return find(*arguments(settings))

    return check


CHECKS: Final[Mapping[str, Check]] = {
    "brokers": _found_by("doctor_cluster", "bootstrap_servers"),
    "listeners": _found_by("doctor_listeners", "listeners"),
    "versions": _found_by("doctor_versions", "versions"),
    "metadata log": _found_by("doctor_log", "metadata_log"),
    "profile": _found_by("doctor_profile", "profile"),
    "clock": _found_by("doctor_versions", "clock"),
    "polling": _found_by("doctor_cluster", "poll_once"),
    "samples": _found_by("doctor_samples", "samples"),
    "reassignments": _found_by("doctor_cluster", "list_reassignments"),
    "broker metrics": _found_by("doctor_agents", "broker_metrics"),
}
_NEEDS_A_BROKER: Final = frozenset(CHECKS) - {"brokers", "listeners", "broker metrics"}
