"""Checks of ``isrwatch doctor`` of the metadata log: can it be read, and what of the quorum is in the way?"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.contracts.observations import BrokerObserved, ControllerObserved, SnapshotEnd
from streaming.contracts.quorum_members import doubled, doubled_sentence, replaced, replaced_sentence
from streaming.contracts.records import METADATA_VERSION
from streaming.contracts.registrations import Registration, blockers, blocks, unblocked_by
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.opening import bootstrap_of, open_metadata_log
from streaming.sources.protocol.quorum_messages import member_of
from streaming.sources.source import wall_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.contracts.observations import Observation
    from streaming.contracts.records import EndPoint
    from streaming.settings import Settings
    from streaming.sources.metadata_log.source import MetadataLogSource
    from streaming.sources.protocol.quorum_messages import Quorum

_NOT_UP: Final = "it is not up; start it, or unregister it if it is gone for good"


def metadata_log(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Read the metadata log, and say what would be in its way."""
    configured = settings.collect.primary_source
    if configured == "poll":
        yield Status.SKIPPED, 'collect.primary_source is "poll": the metadata log is not read'
        with suppress(ConfigurationError, ConnectionRefused):  # another check says why
            yield from ((Status.WARNING, each) for each in _of_directories(bootstrap_of(settings).quorum()))
        return
    try:
        with _opened(settings) as source:
            full, unread, is_whole = _full_report(source), source.take_undecodable(), source.is_whole
            twins = source.doubled
    except (ConfigurationError, ConnectionRefused) as refusal:
        status = Status.WARNING if configured == "auto" else Status.PROBLEM
        meanwhile = "; the brokers are polled meanwhile" if configured == "auto" else ""
        yield status, f"{refusal}{meanwhile}"
        return
    yield from _unreadable(unread, is_whole=is_whole)
    if not is_whole:
        return
    topics = next((len(one.topic_ids) for one in full if isinstance(one, SnapshotEnd)), None)
    have = "" if topics is None else f" with {numbered(topics, 'topic')}"
    yield Status.OK, f"the metadata log can be read{have}: every change is recorded with its cause"
    for sentence in chain(twins.values(), _of_quorum(settings, full)):
        yield Status.WARNING, sentence
    for one in full:
        if isinstance(one, BrokerObserved) and one.registered and one.fenced:
            yield Status.WARNING, f"broker {one.broker} is fenced: {_NOT_UP}"


def registered_listeners(settings: Settings) -> Mapping[tuple[str, int], tuple[EndPoint, ...]]:
    """Return the listeners that nodes have registered in the metadata log, by role and id; none if it is not read."""
    if settings.collect.primary_source == "poll":
        return {}
    try:
        with _opened(settings) as source:
            _full_report(source)
            return source.end_points if source.is_whole else {}
    except (ConfigurationError, ConnectionRefused):  # another check says why
        return {}


def is_log_read(settings: Settings) -> bool:
    """Return whether the collector would read the metadata log now."""
    if settings.collect.primary_source == "poll":
        return False
    try:
        with _opened(settings) as source:
            return source.is_whole
    except (ConfigurationError, ConnectionRefused):  # another check says why
        return False


@contextmanager
def _opened(settings: Settings) -> Iterator[MetadataLogSource]:
    """Open the metadata log, with a checkpoint for this time only.

    Raises:
        ConfigurationError: an address or a client property is wrong.
        ConnectionRefused: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="isrwatch-doctor-") as folder:
        source = open_metadata_log(settings, path=Path(folder) / "checkpoint.json", report=lambda _: None)
        with closing(source):
            source.connect(seconds=SECONDS)
            yield source


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
    with suppress(ConnectionRefused):
        bootstrap = bootstrap_of(settings)
        quorum = bootstrap.quorum()
        yield from _of_voters(settings.cluster.controllers.addresses, quorum)
        yield from _of_upgrade(bootstrap.features().get(METADATA_VERSION, 0), quorum, full)


def _of_voters(fixed: Mapping[str, str], quorum: Quorum) -> Iterator[str]:
    """Name the voters without an address where addresses are fixed, as each may lead next, and those without a disk."""
    for voter in sorted(quorum.voters.keys() - set(map(int, fixed))) if fixed else ():
        yield (
            f"controller {voter} is a voter, and has no address in cluster.controllers.addresses: while it "
            "leads, the metadata log cannot be read; add it"
        )
    yield from _of_directories(quorum)


def _of_directories(quorum: Quorum) -> Iterator[str]:
    """Name the nodes that are in the quorum with several directories: one is gone, or several processes run."""
    for node, members in doubled(quorum.members, member_of).items():
        yield doubled_sentence(node, [(each.directory_id, each.is_voter) for each in members])
    for node, (voter_of, observer) in replaced(quorum.members, member_of).items():
        yield replaced_sentence(node, voter_of.directory_id, observer.directory_id)


def _of_upgrade(finalized: int, quorum: Quorum, full: Sequence[Observation]) -> Iterator[str]:
    """Say which registrations block the level that every broker that is up supports; ``full`` is a full report."""
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
    full: list[Observation] = []
    arrived: list[Observation] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not any(isinstance(one, SnapshotEnd) for one in arrived):
        arrived = list(source.poll(wall_clock()))
        full += arrived
    return full
