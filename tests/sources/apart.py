"""What ``test_separate`` runs in other processes. Little is imported here: each of them imports it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.errors import ConfigurationError
from streaming.sources.protocol.addresses import Address, Peers
from tests.sources.scripted import Scripted, heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.sources.source import Source

NAME = "samples:a"
NODE = Address("127.0.0.1", 9092)


class Counting(Scripted):
    """A source whose connections count."""

    def __init__(self, pid_file: Path) -> None:
        super().__init__(NAME, [heartbeat(NAME, 1)], [heartbeat(NAME, 2)])
        self.peers = Peers()
        self.peers.at(NODE).count(requests=3)
        pid_file.write_text(str(os.getpid()))


def open_counting(pid_file: Path, report: Callable[[str], None]) -> Sequence[Source]:
    report("opened")
    return [Counting(pid_file)]


def open_after_a_failure(marker: Path, report: Callable[[str], None]) -> Sequence[Source]:
    if not marker.exists():
        marker.touch()
        raise ConfigurationError("ssl.ca.location is missing")
    return open_counting(marker.with_name("pid"), report)


def open_hurried(*arguments: Any, **options: Any) -> Sequence[Source]:
    """Open the samples, with rounds of a second in which brokers are compared."""
    from streaming.sources.samples import source  # noqa: PLC0415 - see above

    source.LEAST_SPEED_SECONDS = 1.0  # type: ignore[misc] - of this process alone
    return source.open_samples(*arguments, **options)
