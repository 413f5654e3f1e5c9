"""A collector in a process of its own, so that what it decodes takes no interpreter lock from the metadata log.

It polls and publishes by itself. Over a pipe come its lines for the user and, once a second, its metrics; it ends when
the pipe does, however this process ended. When it fails, it is started again after a growing pause.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector as MetricFamilies

from streaming.movement import Motion
from streaming.sources.collector.collector import Collector, join, sentence_of
from streaming.sources.collector.metrics import source_up
from streaming.sources.source import RestartPauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

    from prometheus_client import Metric

    from streaming.bus.directory import DirectoryPublisher
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.source import Source

if TYPE_CHECKING:
    OpenSources = Callable[[Callable[[str], None]], Sequence[Source]]

_REPORT_SECONDS: Final = 1.0
_END_SECONDS: Final = 10.0


@runtime_checkable
class ConnectedSource(Protocol):
    """A source with connections of its own."""

    peers: Peers


class ProcessCounts(NamedTuple):
    """Counts of the process so far: its metrics, counts of its connections by address, and its sources that hang."""

    families: list[Metric]
    connections: dict[str, dict[str, int]]
    hanging: list[str]


class EndReason(NamedTuple):
    """Why the process ends."""

    reason: str


class SeparateCollector(MetricFamilies):
    """Runs a collector in another process, until it is stopped.

    Args:
        open_sources: creates its sources, there; so it can be pickled, as what ``open_publisher`` is can.
        open_publisher: opens the bus for one source.
        cluster: the display name of the cluster.
        name: of its source, for the user.
        peers: take over what its connections count.
        report: takes one line for the user.
    """

    def __init__(  # noqa: PLR0913 - four of them are keywords
        self,
        open_sources: OpenSources,
        open_publisher: Callable[[], DirectoryPublisher],
        *,
        cluster: str,
        name: str,
        peers: Peers,
        report: Callable[[str], None],
    ) -> None:
        self.name, self._peers = name, peers
        self._opens, self._cluster, self._report = (open_sources, open_publisher), cluster, report
        self._stopping = threading.Event()
        self._families: list[Metric] = self._not_up()
        self.movement, self._hanging = Motion(), list[str]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the process."""
        self._thread.start()

    def stop(self) -> None:
        """Request its end; may be called from a signal handler."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait until its sources are closed."""
        join(self._thread)

    def problems(self) -> list[str]:
        """List what hangs: its sources, or the whole process, which reports each second."""
        if self.movement.hangs():
            return [f"{self.name} hangs: its process has reported nothing for {self.movement.still_seconds():.0f} s"]
        return self._hanging

    def collect(self) -> Iterator[Metric]:
        """Return its metrics, of at most a second ago."""
        yield from self._families

    def _run(self) -> None:
        pauses = RestartPauses()
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = self._reason_of_end()
            self._families, self._hanging = self._not_up(), []
            self.movement.begin()
            if self._stopping.is_set():
                return
            seconds = pauses.after(time.monotonic() - began)
            self._report(f"{self.name}: {reason}; starting it again in {seconds:g} s")
            self._stopping.wait(seconds)

    def _reason_of_end(self) -> str:
        """Run the process until its end, or until the stop."""
        context = get_context("spawn")  # a fork would copy threads and locks in any state
        ours, theirs = context.Pipe()
        process = context.Process(
            target=collect_apart, args=(theirs, *self._opens, self._cluster), name=self.name, daemon=True
        )
        process.start()
        self.movement.begin()
        theirs.close()
        counted: dict[str, dict[str, int]] = {}
        reason = ""
        with ours, suppress(EOFError, OSError):
            while not self._stopping.is_set():
                if not ours.poll(_REPORT_SECONDS / 2):
                    continue
                message = ours.recv()
                self.movement.note()
                if isinstance(message, ProcessCounts):
                    self._families, self._hanging = message.families, message.hanging
                    self._peers.add(message.connections, before=counted)
                    counted = message.connections
                elif isinstance(message, EndReason):
                    reason = message.reason
                else:
                    self._report(message)
        process.join(_END_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        return reason or f"its process ended with code {process.exitcode}"

    def _not_up(self) -> list[Metric]:
        registry = CollectorRegistry()
        source_up(registry).labels(self._cluster, self.name).set(0)
        return [*registry.collect()]


def collect_apart(
    pipe: Pipe, open_sources: OpenSources, open_publisher: Callable[[], DirectoryPublisher], cluster: str
) -> None:
    """Collect until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the other one ends this
    sending = threading.Lock()

    def send(message: str | ProcessCounts | EndReason) -> None:
        with sending, suppress(OSError):
            pipe.send(message)

    try:
        sources = open_sources(send)
        collector = Collector(sources, open_publisher, cluster=cluster, report=send)
        peers = [source.peers for source in sources if isinstance(source, ConnectedSource)]
        collector.start()
        with suppress(OSError):
            while collector.is_running and not pipe.poll(_REPORT_SECONDS):
                connections = {address: counts for each in peers for address, counts in each.counts().items()}
                send(ProcessCounts([*collector.registry.collect()], connections, collector.metrics.hanging()))
        collector.stop()
        collector.wait()
    except Exception as failure:  # noqa: BLE001 - whatever it is, the other process says it
        send(EndReason(sentence_of(failure)))
