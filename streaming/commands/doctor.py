"""``isrwatch doctor``: check a configuration, and everything that it needs, before or while isrwatch runs."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from streaming.cluster_settings import each_cluster, filled
from streaming.commands.cluster_options import BootstrapServersOption, ClusterOption, with_bootstrap_servers
from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, SECONDS, Finding, Status, numbered
from streaming.configuration_file import OPTION_HELP, file_to_read, overriding
from streaming.errors import ConfigurationError, ConnectionRefused, IsrwatchError
from streaming.escapes import json_text
from streaming.settings import written_secrets
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import Observation
    from streaming.settings import Settings
    from streaming.sources.collector.listeners import Listener
    from streaming.sources.metadata_log.source import MetadataLogSource
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.identity import Responder
    from streaming.sources.protocol.quorum_messages import Quorum, QuorumMember

_STYLE: Final = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red", Status.SKIPPED: "dim"}


def doctor(
    *,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
    cluster: ClusterOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Check that this Prometheus has our rules, and scrapes isrwatch.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding and line.")] = False,
) -> None:
    """Check a configuration and what it needs: brokers, permissions, clocks, bus, folders, tables, Java, ports, TLS.

    Every finding is one sentence, with the fix. It changes nothing, and prints no password. The exit code is 1 if there
    is a problem; a warning is none.

    Examples:
    isrwatch doctor --config isrwatch.toml

    isrwatch doctor --bootstrap-servers broker-1:9092

    isrwatch doctor --config isrwatch.toml --prometheus http://prometheus:9090

    isrwatch doctor --config isrwatch.toml --json | jq 'select(.status == "problem")'
    """
    every = with_bootstrap_servers(each_cluster(config, cluster), bootstrap_servers)
    file = file_to_read(config, os.environ)
    checked = chain(read_from(file, os.environ), secrets(every, file), findings(filled(every), prometheus))
    worst = _print_json(checked) if as_json else print_findings(checked)
    if worst:
        raise typer.Exit(1)


def _print_json(checked: Iterable[Finding]) -> bool:
    """Print each finding as it comes; return whether there is a problem."""
    has_problem = False
    for finding in checked:
        has_problem |= finding.status is Status.PROBLEM
        Terminal().document([json_text(asdict(finding))])
    return has_problem


def print_findings(checked: Iterable[Finding]) -> bool:
    """Print findings as they come, then their sum; return whether one is a problem."""
    console = Terminal()
    counts = dict.fromkeys(Status, 0)
    for finding in checked:
        counts[finding.status] += 1
        status = Text(f"{finding.status:8}", _STYLE[finding.status])
        about = f"{finding.cluster}: " if finding.cluster else ""
        print_wrapped(console, Text.assemble(status, f"{finding.check:15}", (about, "bold"), finding.sentence))
    problems, warnings = numbered(counts[Status.PROBLEM], "problem"), numbered(counts[Status.WARNING], "warning")
    console.print(f"{problems}, {warnings}, {counts[Status.OK]} ok")
    return counts[Status.PROBLEM] > 0


# Findings of ``isrwatch doctor`` about listeners and certificates.


LEAST_DAYS: Final = 14
_DAY_SECONDS: Final = 86_400
_PATIENCE_SECONDS: Final = 1.0


def listeners(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Ask each listener of brokers and controllers, and check how long certificates are valid: theirs and our own."""
    from streaming.sources.collector.certificates import configured, in_words, look_at, secured
    from streaming.sources.collector.listeners import ask_all, dials_of, discover, distinct, own_expiries, responders_at
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.identity import Role

    peers = Peers()
    answers = ask_all(distinct(discover(settings)), dials_of(settings, peers))
    silent = {str(one): reason for one, reason in answers.items() if reason and one.role is not Role.BOOTSTRAP}
    yield from ((Status.WARNING, f"{listener} does not respond: {reason}") for listener, reason in silent.items())
    if responding := sum(not reason for reason in answers.values()):
        yield Status.OK, f"of brokers and controllers, {numbered(responding, 'listener')} responded"
    yield from _identities(responders_at((one for one, reason in answers.items() if not reason), settings, peers))
    ends = {one.address: (str(one), peers.at(one.address).certificate_expires_at) for one in answers}
    silent_addresses = [one.address for one, reason in answers.items() if reason]
    from_nodes, unknown = configured(settings, silent=silent_addresses)
    for why in dict.fromkeys(unknown.values()):
        nodes = ", ".join(str(node) for node, each in unknown.items() if each == why)
        yield Status.WARNING, f"unseen are the certificates of all listeners of broker {nodes} that others use: {why}"
    for one, seen in look_at(secured(from_nodes)).items():
        ends[one.address] = f"{one}", seen.ends_at
        if seen.ends_at is None:
            yield Status.WARNING, in_words(one, seen)
    shown = {name: end for name, end in ends.values() if end is not None}
    yield from _certificates(shown, own_expiries(settings))
    yield from _dead_addresses([one.address for one in answers])


def _identities(responders: Mapping[Listener, Responder]) -> Iterator[tuple[Status, str]]:
    """Name each address that leads to another node, and why that is unknown of others."""
    from streaming.sources.protocol.identity import DENIED, WrongNode

    wrong = {listener: by for listener, by in responders.items() if by.is_meant is False}
    yield from ((Status.PROBLEM, str(WrongNode(listener.address, by))) for listener, by in wrong.items())
    if proven := sum(by.is_meant is True for by in responders.values()):
        yield (Status.OK, f"of brokers and controllers, {numbered(proven, 'listener')} led to the node that it is of")
    unknown: dict[str, list[str]] = {}
    for by in responders.values():
        if by.is_meant is None:
            unknown.setdefault(by.why_unknown, []).append(str(by.meant))
    for why, nodes in unknown.items():
        status = Status.WARNING if why == DENIED else Status.SKIPPED
        yield status, f"it is unknown whether the addresses of {', '.join(nodes)} lead to them: {why}"


def _certificates(of_nodes: dict[str, float], own: dict[str, float]) -> Iterator[tuple[Status, str]]:
    """Name each certificate that must be renewed, and only the first to expire of the others."""
    from streaming.sources.collector.certificates import NO_RESTART

    now, ends = time.time(), of_nodes | own
    for name, end in ends.items():
        date = time.strftime("%Y-%m-%d", time.gmtime(end))
        if end <= now:
            advice = NO_RESTART if name in of_nodes else "renew it"
            yield Status.PROBLEM, f"the certificate of {name} expired on {date}: {advice}"
        elif end < now + LEAST_DAYS * _DAY_SECONDS:
            yield Status.WARNING, f"the certificate of {name} expires on {date}: renew it"
    first = min(ends, key=ends.__getitem__, default=None)
    if first is not None and ends[first] >= now + LEAST_DAYS * _DAY_SECONDS:
        days = (ends[first] - now) / _DAY_SECONDS
        yield Status.OK, f"the first certificate to expire is that of {first}, in {days:.0f} days"


def _dead_addresses(addresses: Iterable[Address]) -> Iterator[tuple[Status, str]]:
    """Name the addresses of a name that accept no connection while others of it do: every client loses time there."""
    from streaming.sources.protocol.sockets import Race, resolved

    for address in dict.fromkeys(addresses):
        try:
            places = resolved(address, _PATIENCE_SECONDS)
        except ConnectionRefused:  # said above
            continue
        if len(places) > 1:
            with closing(Race(places, seconds=_PATIENCE_SECONDS)) as race:
                while (connected := race.next()) is not None:
                    connected[0].close()
                count = len(set(places))
                for place, why in race.failures.items() if len(race.failures) < count else ():
                    yield (
                        Status.WARNING,
                        (
                            f"{address} has {count} addresses, and {place} is of no use ({why}): correct what the name "
                            "resolves to, or what listens there"
                        ),
                    )


# Checks of ``isrwatch doctor``: each gives findings, one sentence each, with the fix where there is one.
#
# Nothing is changed: no folder is created, nothing is downloaded, no offset or position is stored. No sentence holds a
# password: addresses are printed without a login, and properties of clients are not printed.


if TYPE_CHECKING:
    Check = Callable[[Settings], Iterator[tuple[Status, str]]]

LARGEST_SKEW_SECONDS: Final = 5.0
_OF_OTHERS: Final = 0o044
_NOT_UP: Final = "it is not up; start it, or unregister it if it is gone for good"


def findings(every: Sequence[Settings], prometheus: str = "") -> Iterator[Finding]:
    """Run the checks of each cluster, then those of this machine, then those of a Prometheus if a URL is given."""
    for settings in every:
        name = settings.cluster.name if len(every) > 1 else ""
        for finding in _run(settings, CHECKS):
            yield replace(finding, cluster=name)
    if every[0].bus.kafka.bootstrap_servers:
        yield from _run(every[0], {"bus": lambda _: _kafka_bus(every)})
    yield from _run(every[0], CHECKS_OF_THE_MACHINE)
    if prometheus:
        yield from _run(every[0], {"prometheus": lambda settings: _prometheus(prometheus, settings)})


def _kafka_bus(every: Sequence[Settings]) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_bus import kafka_bus

    return kafka_bus(every)


def _prometheus(url: str, settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_prometheus import checks_of

    return checks_of(url, settings.alerts)


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
        except IsrwatchError as error:
            is_reached &= name != "brokers"
            yield Finding(check=name, status=Status.PROBLEM, sentence=str(error))


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


def _brokers(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Names, addresses, TLS and login: each bootstrap server by itself, because one that answers hides the others."""
    from streaming.settings import ControllersSettings
    from streaming.sources.metadata_log.opening import bootstrap_of
    from streaming.sources.polling.metadata import several_clusters
    from streaming.sources.protocol.addresses import parse_servers

    clusters, refusals = dict["Address", "ClusterId"](), list[str]()
    for address in parse_servers(settings.cluster.bootstrap_servers):
        its = replace(settings.cluster, bootstrap_servers=str(address), controllers=ControllersSettings())
        try:
            clusters[address] = bootstrap_of(replace(settings, cluster=its)).cluster_id()
        except ConnectionRefused as refusal:
            refusals.append(str(refusal))
    yield from ((Status.OK, f"{address} answers; it is of cluster {each}") for address, each in clusters.items())
    yield from ((Status.WARNING if clusters else Status.PROBLEM, refusal) for refusal in refusals)
    yield from ((Status.PROBLEM, str(several)) for several in [several_clusters(clusters)] if several is not None)


def _metadata_log(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.contracts.observations import BrokerObserved, SnapshotEnd
    from streaming.sources.metadata_log.opening import open_metadata_log

    configured = settings.collect.primary_source
    if configured == "poll":
        yield Status.SKIPPED, 'collect.primary_source is "poll": the metadata log is not read'
        return
    with tempfile.TemporaryDirectory(prefix="isrwatch-doctor-") as folder:
        try:
            source = open_metadata_log(settings, path=Path(folder) / "checkpoint.json", report=lambda _: None)
            with closing(source):
                source.connect(seconds=SECONDS)
                full = _full_report(source)
                unread = source.take_undecodable()
                is_whole = source.is_whole
        except (ConfigurationError, ConnectionRefused) as refusal:
            status = Status.WARNING if configured == "auto" else Status.PROBLEM
            meanwhile = "; the brokers are polled meanwhile" if configured == "auto" else ""
            yield status, f"{refusal}{meanwhile}"
        else:
            yield from _unreadable(unread, is_whole=is_whole)
            if not is_whole:
                return
            topics = next((len(one.topic_ids) for one in full if isinstance(one, SnapshotEnd)), None)
            have = "" if topics is None else f" with {numbered(topics, 'topic')}"
            yield Status.OK, f"the metadata log can be read{have}: every change is recorded with its cause"
            for sentence in _of_quorum(settings, full):
                yield Status.WARNING, sentence
            for one in full:
                if isinstance(one, BrokerObserved) and one.registered and one.fenced:
                    yield Status.WARNING, f"broker {one.broker} is fenced: {_NOT_UP}"


def _unreadable(unread: Sequence[bytes], *, is_whole: bool) -> Iterator[tuple[Status, str]]:
    """Name the first record of the metadata log that cannot be read for each reason, and what follows from them."""
    first: dict[str, int] = {}
    for document in map(json.loads, unread):
        first.setdefault(document["reason"], document["metadata_offset"])
    for reason, offset in first.items():
        yield Status.WARNING, f"the metadata record at offset {offset} cannot be read: {reason}"
    if not is_whole:
        then = "the metadata log is not read until Kafka has written a KRaft snapshot from after that record"
        yield Status.WARNING, f"{then}; the brokers are polled meanwhile, unless collect.primary_source forbids it"


def _of_quorum(settings: Settings, full: Sequence[Observation]) -> Iterator[str]:
    """Ask brokers for the quorum once, and name its voters and registrations that will be in the way."""
    from streaming.contracts.records import METADATA_VERSION
    from streaming.sources.metadata_log.opening import bootstrap_of

    with suppress(ConnectionRefused):
        bootstrap = bootstrap_of(settings)
        quorum = bootstrap.quorum()
        yield from _of_voters(settings.cluster.controllers.addresses, quorum)
        yield from _of_upgrade(bootstrap.features().get(METADATA_VERSION, 0), quorum, full)


def _of_voters(fixed: Mapping[str, str], quorum: Quorum) -> Iterator[str]:
    """Name the voters without an address where addresses are fixed, as each may lead next, and those without a disk."""
    from streaming.contracts.quorum_members import Member, replaced, replaced_sentence

    for voter in sorted(quorum.voters.keys() - set(map(int, fixed))) if fixed else ():
        yield (
            f"controller {voter} is a voter, and has no address in cluster.controllers.addresses: while it "
            "leads, the metadata log cannot be read; add it"
        )

    def member(each: QuorumMember) -> Member:
        return Member(each.node, each.directory_id, each.is_voter, 0, each.last_caught_up_ms)

    for node, (voter_of, observer) in replaced(quorum.members, member).items():
        yield replaced_sentence(node, voter_of.directory_id, observer.directory_id)


def _of_upgrade(finalized: int, quorum: Quorum, full: Sequence[Observation]) -> Iterator[str]:
    """Say which registrations block the level that every broker that is up supports; ``full`` is a full report."""
    from streaming.contracts.observations import BrokerObserved, ControllerObserved
    from streaming.contracts.registrations import Registration, blockers, blocks, unblocked_by

    brokers = [
        Registration(one.broker, False, one.newest_metadata_version, not one.fenced)
        for one in full
        if isinstance(one, BrokerObserved) and one.registered
    ]
    newest = min((each.level for each in brokers if each.is_present and each.level is not None), default=0)
    controllers = [
        Registration(node, True, level or None, node in quorum.voters)
        for one in full
        if isinstance(one, ControllerObserved)
        for node, level in zip(one.registered_controllers or (), one.registered_levels or (), strict=True)
    ]
    blocking = blockers([*controllers, *brokers], newest)
    if blocking and newest > finalized:
        yield (
            f"the registration of {' and of '.join(map(blocks, blocking))} blocks the upgrade of metadata.version "
            f"from {finalized} to {newest}: {'; '.join(unblocked_by(blocking, finalized))}"
        )


def _full_report(source: MetadataLogSource) -> list[Observation]:
    """Read the metadata log and return all that is in it, hidden topics as well; less if that takes too long."""
    from streaming.contracts.observations import SnapshotEnd
    from streaming.sources.source import wall_clock

    full: list[Observation] = []
    arrived: list[Observation] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not any(isinstance(one, SnapshotEnd) for one in arrived):
        arrived = list(source.poll(wall_clock()))
        full += arrived
    return full


def _versions(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.contracts.records import METADATA_VERSION
    from streaming.sources.metadata_log.decoding import TESTED
    from streaming.sources.metadata_log.opening import bootstrap_of

    level = bootstrap_of(settings).features().get(METADATA_VERSION)
    if level is None:
        yield Status.OK, "a cluster with ZooKeeper, which is polled; tested with Kafka 3.9.1 and 1.0.2"
    elif level in TESTED:
        yield Status.OK, f"metadata.version is {level}, that of Kafka {TESTED[level]}, with which isrwatch is tested"
    else:
        tested = ", ".join(f"{each} (Kafka {release})" for each, release in TESTED.items())
        untested = f"metadata.version is {level}, which is untested; the metadata log is tested with {tested}"
        unknown = "; the check of the metadata log says if one of its records cannot be read"
        yield Status.OK, f"{untested}{unknown if level > max(TESTED) else ''}"


def _clock(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.sources.metadata_log.opening import bootstrap_of

    try:
        quorum = bootstrap_of(settings).quorum()
    except (ConfigurationError, ConnectionRefused):
        yield Status.SKIPPED, "no controller says what time it is: the check before says why"
        return
    millis = quorum.voters.get(quorum.leader.node)
    if millis is None:
        yield Status.SKIPPED, "this version of Kafka does not say what time it is at a controller"
        return
    skew = time.time() - millis / 1_000
    if abs(skew) > LARGEST_SKEW_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        yield Status.WARNING, f"the clock here is {abs(skew):.0f} s {way} that of the active controller: set it by NTP"
    else:
        yield Status.OK, f"the clocks here and at the active controller differ by less than {LARGEST_SKEW_SECONDS:g} s"


def _polling(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_cluster import poll_once

    return poll_once(settings.cluster, settings.collect.probe_prefix)


def _samples(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_cluster import samples

    return samples(settings)


def _reassignments(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_cluster import list_reassignments

    return list_reassignments(settings.cluster)


def _broker_metrics(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_agents import broker_metrics

    return broker_metrics(settings)


CHECKS: Final[Mapping[str, Check]] = {
    "brokers": _brokers,
    "listeners": listeners,
    "versions": _versions,
    "metadata log": _metadata_log,
    "clock": _clock,
    "polling": _polling,
    "samples": _samples,
    "reassignments": _reassignments,
    "broker metrics": _broker_metrics,
}
_NEEDS_A_BROKER: Final = frozenset({"versions", "metadata log", "clock", "polling", "samples", "reassignments"})
