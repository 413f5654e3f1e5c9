"""The loop that asks sources and writes what they saw to the bus: one thread and one publisher a source.

Knows the interfaces of sources and publishers only. A source that cannot see its cluster is asked again, later and
later; a bus that cannot be written stops everything, because what was read would be lost: the sources' checkpoints
then still say where to go on.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.errors import ConnectionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.bus.publisher import Publisher
    from streaming.sources.source import Source

_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BREATH: Final = 0.01  # after a poll that came back at once with nothing


@runtime_checkable
class KeepsUndecodable(Protocol):
    """A source that also hands over what it could not read, as JSON for the quarantine."""

    def take_undecodable(self) -> list[bytes]:
        """Hand over what could not be read since the last call."""


class Collector:
    """Runs sources until it is stopped, or until one of them fails for good.

    Args:
        sources: each is asked in a thread of its own.
        open_publisher: opens the bus for one source.
        report: takes one line for people.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        open_publisher: Callable[[], Publisher],
        *,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._open_publisher = open_publisher
        self._report = report
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(source,), name=source.name, daemon=True) for source in sources
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask everything to end; may be called from a signal handler."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait for the end: every source is closed and its checkpoint written.

        Raises:
            Exception: what made a source fail for good.
        """
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, source: Source) -> None:
        try:
            publisher = self._open_publisher()
            try:
                self._ask_on(source, publisher)
            finally:
                source.close()
                publisher.close()
        except BaseException as failure:  # noqa: BLE001 - raised again by wait(), in the thread that people watch
            self._failures.append(failure)
        finally:
            self._stopping.set()

    def _ask_on(self, source: Source, publisher: Publisher) -> None:
        refusals = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                found = source.poll(Micros(time.time_ns() // 1000))
            except ConnectionRefused as refusal:
                if not refusals:
                    self._report(f"{source.name}: {refusal}; trying again")
                self._stopping.wait(_PAUSES[min(refusals, len(_PAUSES) - 1)])
                refusals += 1
                continue
            if refusals and found:  # nothing may only mean that the answer is still under way
                self._report(f"{source.name}: sees the cluster again")
                refusals = 0
            if isinstance(source, KeepsUndecodable):
                for payload in source.take_undecodable():
                    publisher.publish_raw(Channel.REPLICATION, source.name, payload)
            if found:
                publisher.publish(found)
            source.acknowledge()
            if not found and time.monotonic() - began < _BREATH:
                self._stopping.wait(_BREATH)
