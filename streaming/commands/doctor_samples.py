"""Checks of samples by ``isrwatch doctor``: it asks once what the collector asks again and again."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_machine import SECONDS, Status
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.contracts.samples import (
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
)
from streaming.sources.collector.listener_watch import throttled_words
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.samples.groups.spark import CheckpointUnreadable, read_checkpoint
from streaming.sources.samples.source import open_samples
from streaming.sources.source import wall_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.contracts.observations import Observation
    from streaming.settings import Settings
    from streaming.sources.samples.source import SamplesSource

_READ: Final[dict[type[Observation], str]] = {
    ReplicaOffsetsObserved: "replicas whose offsets can be read",
    LogDirectoryObserved: "log directories whose size can be read",
    GroupObserved: "groups that are listed",
    GroupOffsetsObserved: "partitions of groups whose owner or committed offset can be read",
    QuorumMemberObserved: "members of the metadata quorum whose log end can be read",
}
"""Text of the count for each kind of sample."""
_QUIET_SECONDS: Final = 1.0
"""A round has ended when nothing has come for so long."""


def samples(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Take one round of samples.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    (source,) = open_samples(settings, lambda _: None)
    began = time.monotonic()
    with closing(source):
        counts, refusals = _one_round(source)
    yield from _checkpoints(settings.collect.spark_checkpoints)
    yield from ((Status.OK, f"{what}: {counts[kind]}") for kind, what in _READ.items() if counts[kind])
    yield from ((Status.WARNING, refusal) for refusal in refusals)
    throttled = {address: peer.throttled_ms / 1_000 for address, peer in source.peers.all().items()}
    shares = {address: seconds / (time.monotonic() - began) for address, seconds in throttled.items() if seconds}
    if shares:
        yield Status.WARNING, throttled_words(shares)
    if not counts and not refusals:
        yield Status.WARNING, f"no broker gave a sample within {SECONDS:g} s"


def _checkpoints(folders: Mapping[str, str]) -> Iterator[tuple[Status, str]]:
    for name, folder in folders.items():
        try:
            partitions = sum(map(len, read_checkpoint(Path(folder)).committed.values()))
            yield Status.OK, f"partitions that the query with the Spark checkpoint {name} has read: {partitions}"
        except CheckpointUnreadable as reason:
            yield Status.WARNING, f"the Spark checkpoint {name} is not read: {reason}"


def _one_round(source: SamplesSource) -> tuple[Counter[type[Observation]], list[str]]:
    """Return how many samples there are of each kind, and what is missing.

    Raises:
        ConnectionRefused: no broker answers.
    """
    counts: Counter[type[Observation]] = Counter()
    refusals: list[str] = []
    last = ends = time.monotonic()
    ends += SECONDS
    while time.monotonic() < ends and not (counts and time.monotonic() - last > _QUIET_SECONDS):
        try:
            arrived = source.poll(wall_clock())
        except WrongNode:  # which the check of listeners names
            continue
        except ServiceRefused as refusal:
            refusals.append(str(refusal))
            continue
        for each in arrived:
            kind, count = (each.sample, len(each)) if isinstance(each, SamplesBlock) else (type(each), 1)
            counts[kind] += count
            last = time.monotonic()
    return counts, refusals
