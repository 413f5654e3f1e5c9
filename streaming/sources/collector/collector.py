"""The loop that polls sources and publishes their observations: one thread and one publisher per source."""

# Theory of operation
#
# A collector is a set of independent loops: poll a source, publish what it reported, acknowledge. One thread and one
# publisher belong to one source, so the order of a source on the bus is the order of its polls, and a source that hangs
# holds up no other. It depends on the interfaces of sources and publishers, and on how a node refuses; it knows nothing
# about Kafka.
#
# What may fail, and what follows:
#   - the cluster cannot be read (``ConnectionRefused``): the source is polled again with a growing pause;
#   - a log of the bus was removed while it was written (``BusReplaced``): another one begins, and a full report is
#     requested;
#   - the disk of the bus is full (``BusFull``): the source is not polled, and the same observations are published again
#     and again, without an acknowledgement;
#   - the bus deleted at its limit what no job has applied, or the clock of the machine was set: a full report is
#     requested;
#   - anything else, of the bus or of our own code: everything stops, and ``wait`` raises it. The checkpoints of the
#     sources still name the last acknowledged position, so the next start repeats and loses nothing.
#
# The switch of sources. Besides the metadata log a poller runs (``collector.opening``), as a source of kind NONE: it
# reports configurations only. Nothing here switches it; it asks the log ``is_primary`` before each of its rounds
# (``polling.source``: ``_stand_in``). That is false
#   - until a controller has answered for the first time;
#   - at once, when the log refuses for good: a missing permission, a version that cannot serve (``CannotServe``);
#   - after ``SILENCE_SECONDS`` without an answer, by the monotonic clock;
#   - while a record that hides the state was not passed (``is_whole``).
# Then the poller reports as POLL, and begins with a full report. The fold may take no notice yet: for it the primary
# source is silent after ``sources.SILENCE``, measured in observations, and a lower rank takes over only with the begin
# of a full report. So while it stands in the poller sends one every ``POLL_SNAPSHOT_SECONDS`` at the latest. 30
# seconds, then 60, then at most 30 more: a cluster whose log falls silent is ordered by polls after a minute and a
# half. The collector's silence is the shorter one, so that reports are there when the fold is ready for them; the
# fold's is the longer one, so that a hiccup of one collector changes nothing.
#
# Back: when the log answers, the poller falls back to NONE with its next round. For the fold the first observation of
# the log is enough. What lies between the silence and now is partly older than the polls and is dropped, so after a
# silence the log sends a full report, but two heartbeats later, when its times have passed those of the last poll
# (``metadata_log.source``: ``_read``).
#
# Invariants
#   1. A source is acknowledged only after all that it returned is on the bus. tests/sources/test_collector.py.
#   2. A source is not polled while something that it returned is not published. tests/sources/test_collector.py.
#   3. Records that could not be decoded are published before the observations of the same poll, each once.
#      tests/sources/test_collector.py.
#   4. While partition state can be read at all, one of log and poller reports it; both may. No report of both is
#      counted twice: that is the fold's part (``changes.sources``). tests/sources/test_admin.py,
#      tests/sources/test_primary_source_real.py.
#   5. A failure is one line for the user, and its end another one; what repeats is not said again.
#      tests/sources/test_collector.py.
#   6. Several clusters in one process (``Collectors``) fail alone. tests/sources/test_collectors.py.
#   7. Nothing is published before its cluster is admitted, and companions, which cannot ask, begin after that.
#      tests/sources/test_cluster_names.py.

from __future__ import annotations

import threading
import time
import traceback
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry

from streaming import errors, movement
from streaming.contracts.observations import Channel
from streaming.errors import BusFull, BusReplaced, ConnectionRefused, IsrwatchError
from streaming.sources.collector.metrics import CollectorMetrics, MergedMetrics, source_up
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.source import ClockJumps, RestartPauses, wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client import Metric

    from streaming.bus.directory import DirectoryPublisher
    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.observations import Observation
    from streaming.sources.source import Source

PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_WAKE_SECONDS: Final = 0.5
_IDLE_PAUSE: Final = 0.01  # after a poll that returned nothing at once


@runtime_checkable
class QuarantiningSource(Protocol):
    """A source that also returns the records it could not decode, as JSON for the quarantine."""

    def take_undecodable(self) -> list[bytes]:
        """Return and drop the records that could not be decoded since the last call."""


@runtime_checkable
class ReportingSource(Protocol):
    """A source that can send a full report before it is due."""

    def request_full_report(self) -> None:
        """Send a full report with the next poll."""


class CompanionCollector(Protocol):
    """Another collector, with metrics of its own."""

    name: str

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Request its end."""

    def wait(self) -> None:
        """Wait until its sources are closed."""

    def problems(self) -> list[str]:
        """List what hangs in it."""

    def collect(self) -> Iterable[Metric]:
        """Return its metrics."""


def join(thread: threading.Thread) -> None:
    """Wait for a thread, and wake up now and then: a signal may arrive just before the wait, which then never ends."""
    while thread.is_alive():
        thread.join(_WAKE_SECONDS)


class Collector:
    """Runs sources until it is stopped, or until one of them fails for good.

    Args:
        sources: each is polled in a thread of its own.
        open_publisher: opens the bus for one source.
        cluster: the display name of the cluster, a label of the metrics.
        report: takes one line for the user.
        companions: other collectors of the cluster, which are started and stopped with this one.
        admit: raises an error if the cluster with an id is not to be read; asked of all that is published.
        clock: the wall-clock time.

    Attributes:
        names: of the sources.
        metrics: what the sources reported.
        registry: exposes it, with the metrics of the others.
    """

    def __init__(  # noqa: PLR0913 - all but two are keywords
        self,
        sources: Sequence[Source],
        open_publisher: Callable[[], DirectoryPublisher],
        *,
        cluster: str = "",
        report: Callable[[str], None] = lambda _: None,
        companions: Sequence[CompanionCollector] = (),
        admit: Callable[[ClusterId], None] | None = None,
        clock: Callable[[], Micros] = wall_clock,
    ) -> None:
        self.names = [*(source.name for source in sources), *(other.name for other in companions)]
        self.metrics = CollectorMetrics(sources, cluster)
        self.registry = CollectorRegistry()
        self.registry.register(MergedMetrics(lambda: [self.metrics.registry, *companions]))
        self._companions, self._admit = companions, admit
        self._lock = threading.Lock()
        self._begun: Sequence[CompanionCollector] = ()  # under the lock: the companions that were started
        self._open_publisher = open_publisher
        self._report, self._clock = report, clock
        # Set once: by ``stop``, or by the first thread that ends. All other threads end after their poll.
        self._stopping = threading.Event()
        # Appended to by the threads of sources; ``wait`` raises the first one after all have ended.
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(source,), name=source.name, daemon=True) for source in sources
        ]

    def hanging(self) -> list[str]:
        """List what hangs."""
        return [*self.metrics.hanging(), *chain.from_iterable(other.problems() for other in self._begun)]

    def problems(self) -> list[str]:
        """List why no partition state is read now, empty while a source reads it, and what hangs."""
        return [*self.metrics.problems(), *chain.from_iterable(other.problems() for other in self._begun)]

    @property
    def is_running(self) -> bool:
        """True while no source has ended, and no stop was requested."""
        return not self._stopping.is_set()

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()
        if self._admit is None:
            self._begin_companions()

    def _begin_companions(self) -> None:
        with self._lock:
            if not self._begun:
                self._begun = self._companions
                for other in self._begun:
                    other.start()

    def stop(self) -> None:
        """Request the end of all threads; may be called from a signal handler."""
        self._stopping.set()
        for other in self._companions:
            other.stop()

    def wait(self) -> None:
        """Wait until every source is closed and its checkpoint written.

        Raises:
            Exception: the first failure that ended a source.
        """
        for thread in self._threads:
            join(thread)
        for other in self._companions:
            other.stop()
            other.wait()
        if self._failures:
            raise self._failures[0]

    def _run(self, source: Source) -> None:
        try:
            publisher = self._open_publisher()
            try:
                with self.metrics.movements[source.name].of_this_thread():
                    self._poll_until_stopped(source, publisher)
            finally:
                source.close()
                publisher.close()
        except BaseException as failure:  # noqa: BLE001 - raised again by wait(), in the main thread
            self._failures.append(failure)
        finally:
            self._stopping.set()

    def _poll_until_stopped(self, source: Source, publisher: DirectoryPublisher) -> None:
        refusals, said, jumps = 0, set[str](), ClockJumps(self._clock)
        while not self._stopping.is_set():
            began = time.monotonic()
            movement.note()
            self._answer_jump(source, jumps.take())
            try:
                observations = source.poll(self._clock())
            except ConnectionRefused as refusal:
                self.metrics.refused(source, refusal)
                # Granting one permission may reveal another that is missing.
                if not refusals or (isinstance(refusal, ServiceRefused) and str(refusal) not in said):
                    self._report(f"{source.name}: {refusal}; trying again")
                    said.add(str(refusal))
                self._stopping.wait(PAUSES[min(refusals, len(PAUSES) - 1)])
                refusals += 1
                continue
            if refusals and observations:  # an empty result may only mean that no response has arrived yet
                self._report(f"{source.name}: reads the cluster again")
                refusals = 0
                said.clear()
            undecodable = source.take_undecodable() if isinstance(source, QuarantiningSource) else []
            unread = len(undecodable)
            self._admit_clusters(observations)
            if not self._is_published(source, publisher, undecodable, observations):
                return
            self.metrics.published(source, observations, unread)
            source.acknowledge()
            self._answer_removed(source, publisher)
            if not observations and time.monotonic() - began < _IDLE_PAUSE:
                self._stopping.wait(_IDLE_PAUSE)

    def _admit_clusters(self, observations: Sequence[Observation]) -> None:
        """Begin the rest of the collector once the cluster is known and admitted."""
        if self._admit is not None and observations:
            for cluster_id in {observed.cluster_id for observed in observations}:
                self._admit(cluster_id)
            self._begin_companions()

    def _is_published(
        self,
        source: Source,
        publisher: DirectoryPublisher,
        undecodable: list[bytes],
        observations: Sequence[Observation],
    ) -> bool:
        """Publish what a source reported, however long the disk is full; return whether that was before the stop.

        Where its log was removed, another one begins with it, and a full report is requested.
        """
        refusals = 0
        while True:
            try:
                _publish(publisher, source.name, undecodable, observations)
            except BusReplaced as loss:
                self._report(f"{source.name}: {loss}")
                if isinstance(source, ReportingSource):
                    source.request_full_report()
                if self._stopping.wait(PAUSES[0]):
                    return False
                continue
            except BusFull as refusal:
                if not refusals:
                    self._report(f"{source.name}: {refusal}; trying again")
                if self._stopping.wait(PAUSES[min(refusals, len(PAUSES) - 1)]):
                    return False
                movement.note()
                refusals += 1
                continue
            if refusals:
                self._report(f"{source.name}: writes the bus again")
            return True

    def _answer_jump(self, source: Source, jump: Micros) -> None:
        """Request a full report after the clock was set: a job has refused what was collected far ahead of its own."""
        if jump and isinstance(source, ReportingSource):
            way, seconds = "ahead" if jump > 0 else "back", round(abs(jump) / 1_000_000)
            self._report(
                f"{source.name}: the clock of this machine was set {way} by {seconds} s: everything is reported again"
            )
            source.request_full_report()

    def _answer_removed(self, source: Source, publisher: DirectoryPublisher) -> None:
        """Report what the publisher had to delete; a full report corrects the states that lack it."""
        removed = publisher.take_removed()
        if not removed.replication:
            return
        self._report(
            f"{source.name}: the bus holds more than bus.max_bytes, so {removed.replication} bytes of changes were "
            "deleted that the job may not have applied: start the job, or raise bus.max_bytes"
        )
        if isinstance(source, ReportingSource):
            source.request_full_report()


def _publish(
    publisher: DirectoryPublisher, source: str, undecodable: list[bytes], observations: Sequence[Observation]
) -> None:
    """Publish what could not be decoded, each once, then the observations."""
    while undecodable:
        publisher.publish_raw(Channel.REPLICATION, source, undecodable[0])
        del undecodable[0]
    if observations:
        publisher.publish(observations)


def sentence_of(failure: Exception) -> str:
    """Return an error for users as it is, one of the system with its fix, and a defect with its place in the code."""
    if isinstance(failure, IsrwatchError):
        return str(failure)
    if isinstance(failure, OSError):
        return errors.sentence_of(failure)
    frame = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{type(failure).__name__}: {failure} ({frame.filename}, line {frame.lineno})"


# Several clusters in one process: a collector for each, and each fails alone.
#
# What ends the collector of one cluster, or keeps its sources from being created, is one line for the user and an
# unhealthy source; after a growing pause the cluster is started again. The others do not notice.


if TYPE_CHECKING:
    OpenCollector = Callable[[Callable[[str], None]], Collector]


class Collectors:
    """Runs the collectors of several clusters, created by their names, until they are stopped.

    ``registry`` has the metrics of all clusters.
    """

    def __init__(
        self, clusters: Mapping[str, OpenCollector], *, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.names = list(clusters)
        self.registry = CollectorRegistry()
        self.registry.register(MergedMetrics(self._members))
        self._report = report
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # Invariant, under the lock: a cluster is in one of both, running or with the sentence that says why it is not.
        self._running: dict[str, Collector] = {}
        self._failures = dict.fromkeys(clusters, "its sources are being created")
        self._threads = [
            threading.Thread(target=self._run, args=(name, open_collector), name=name, daemon=True)
            for name, open_collector in clusters.items()
        ]

    def start(self) -> None:
        """Start every cluster; none waits for another."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Request the end of all threads; may be called from a signal handler."""
        self._stopping.set()
        for collector in list(self._running.values()):
            collector.stop()

    def wait(self) -> None:
        """Wait until every source is closed and its checkpoint written."""
        for thread in self._threads:
            join(thread)

    def hanging(self) -> list[str]:
        """List what hangs; empty while one cluster does not, because a restart would interrupt that one, too."""
        return _of_all({name: each.hanging() for name, each in self._state()[1].items()})

    def problems(self) -> list[str]:
        """List why no cluster is read now; empty while one is, because a restart would interrupt that one, too."""
        failures, running = self._state()
        return _of_all(
            {name: [why] for name, why in failures.items()} | {name: each.problems() for name, each in running.items()}
        )

    def _run(self, name: str, open_collector: OpenCollector) -> None:
        pauses = RestartPauses()
        while not self._stopping.is_set():
            began = time.monotonic()
            failure = self._failure_of(name, open_collector)
            if failure is None:
                return
            seconds = pauses.after(time.monotonic() - began)
            self._report(f"{name}: {failure}; starting this cluster again in {seconds:g} s")
            self._stopping.wait(seconds)

    def _failure_of(self, name: str, open_collector: OpenCollector) -> str | None:
        """Collect one cluster until the end; return what ended it, None if that was the stop."""

        def report(line: str) -> None:
            self._report(f"{name}: {line}")

        try:
            collector = open_collector(report)
            with self._lock:
                self._running[name] = collector
                self._failures.pop(name, None)
            if self._stopping.is_set():  # between the creation and the line above, so it was not stopped
                collector.stop()
            collector.start()
            collector.wait()
        except Exception as failure:  # noqa: BLE001 - of one cluster, which must not end the others
            with self._lock:
                self._running.pop(name, None)
                self._failures[name] = sentence_of(failure)
            return sentence_of(failure)
        return None

    def _state(self) -> tuple[dict[str, str], dict[str, Collector]]:
        with self._lock:
            return dict(self._failures), dict(self._running)

    def _members(self) -> list[CollectorRegistry]:
        """Return the registries of the clusters that run; a cluster that does not is a source that is not up."""
        failures, running = self._state()
        registries = [collector.registry for collector in running.values()]
        if failures:
            registries.append(CollectorRegistry())
            up = source_up(registries[-1])
            for name in failures:
                up.labels(name, f"all:{name}").set(0)
        return registries


def _of_all(clusters: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sentences of clusters, with their names, if each of them has one."""
    return (
        sorted(f"{name}: {why}" for name, sentences in clusters.items() for why in sentences)
        if all(clusters.values())
        else []
    )
