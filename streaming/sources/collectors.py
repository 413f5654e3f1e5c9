"""Several clusters in one process: a collector for each, and each fails alone.

What ends the collector of one cluster, or keeps its sources from being created, is one line for the user and an
unhealthy source; after a growing pause the cluster is started again. The others do not notice.
"""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from streaming.sources.collector import join, sentence_of
from streaming.sources.collector_metrics import MergedMetrics, source_up
from streaming.sources.timer import RestartPauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.sources.collector import Collector

    OpenCollector = Callable[[Callable[[str], None]], Collector]


class Collectors:
    """Runs the collectors of several clusters until they are stopped.

    Args:
        clusters: by the name of each cluster, what creates its collector; it takes what reports a line.
        report: takes one line for the user.

    Attributes:
        registry: the metrics of all clusters.
        names: of the clusters.
    """

    def __init__(
        self,
        clusters: Mapping[str, OpenCollector],
        *,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.names = list(clusters)
        self.registry = CollectorRegistry()
        self.registry.register(MergedMetrics(self._members))
        self._report = report
        self._stopping = threading.Event()
        self._lock = threading.Lock()
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

    def problems(self) -> list[str]:
        """List why no cluster is read now; empty while one is, because a restart would interrupt that one, too."""
        failures, running = self._state()
        of_each = [[f"{name}: {why}"] for name, why in failures.items()]
        of_each += [[f"{name}: {why}" for why in each.metrics.problems()] for name, each in running.items()]
        return sorted(chain.from_iterable(of_each)) if all(of_each) else []

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
