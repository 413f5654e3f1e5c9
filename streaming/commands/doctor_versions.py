"""Checks of ``isrwatch doctor`` of versions and clocks: is Kafka's tested, and is the time here the controllers'?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_machine import Status
from streaming.contracts.records import METADATA_VERSION
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.decoding import TESTED
from streaming.sources.metadata_log.opening import bootstrap_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.settings import Settings

LARGEST_SKEW_SECONDS: Final = 5.0
_UNSAID: Final = (
    "the brokers do not say which metadata.version they use: a proxy leaves that out, or they are another product than "
    "Apache Kafka, with which isrwatch is not tested"
)


def versions(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Compare the level of the metadata with those that are tested."""
    bootstrap = bootstrap_of(settings)
    level = bootstrap.features().get(METADATA_VERSION)
    if level is None and not bootstrap.has_zookeeper():
        yield Status.WARNING, _UNSAID
    elif level is None:
        yield Status.OK, "a cluster with ZooKeeper, which is polled; tested with Kafka 3.9.1 and 1.0.2"
    elif level in TESTED:
        yield Status.OK, f"metadata.version is {level}, that of Kafka {TESTED[level]}, with which isrwatch is tested"
    else:
        tested = ", ".join(f"{each} (Kafka {release})" for each, release in TESTED.items())
        untested = f"metadata.version is {level}, which is untested; the metadata log is tested with {tested}"
        unknown = "; the check of the metadata log says if one of its records cannot be read"
        yield Status.OK, f"{untested}{unknown if level > max(TESTED) else ''}"


def clock(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Compare the time here with that of the active controller."""
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
