"""The thread of a collector that ships its bus to Kafka: when it does, its metrics, and what it says.

It looks at the logs of replication a hundred times a second, at those of samples five times. Nothing that fails ends
it: the collector continues and its directory fills, so it says once what is wrong, and tries again until that is over.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector as MetricFamilies

from streaming.bus.kafka.shipper import Shipper
from streaming.contracts.observations import Channel
from streaming.sources.collector.collector import join, sentence_of
from streaming.sources.collector.metrics import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prometheus_client import Metric

    from streaming.settings import KafkaBusSettings

LOOK_SECONDS: Final = 0.01
SAMPLES_SECONDS: Final = 0.2
DELETE_SECONDS: Final = 5.0
UNHEALTHY_AFTER_SECONDS: Final = 60.0
LAST_SECONDS: Final = 5.0
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0)
_LOG: Final = ("channel", "source")


class Shipping(MetricFamilies):
    """Ships until it is stopped, and once more what the collector wrote last."""

    def __init__(self, directory: Path, settings: KafkaBusSettings, report: Callable[[str], None]) -> None:
        """Start nothing yet."""
        self._shipper = Shipper(directory, settings, report)
        self._servers, self._report = settings.bootstrap_servers, report
        self._stopping = threading.Event()
        self._refusals = 0
        self._failing_since: float | None = None
        self._deleted_at = self._samples_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="shipping", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ship what is left, for a few seconds at most, and join the thread; the collector has ended before."""
        self._stopping.set()
        join(self._thread)

    def problems(self) -> list[str]:
        """List why nothing has been shipped for a minute; a restart of the collector would seldom help sooner."""
        error, since = self._shipper.counts.error, self._failing_since
        if error is None or since is None or time.monotonic() - since < UNHEALTHY_AFTER_SECONDS:
            return []
        return [f"nothing is shipped to the bus: {error}"]

    def _run(self) -> None:
        if not self._is_locked():
            return
        while not self._stopping.is_set():
            if not self._ship():
                self._stopping.wait(LOOK_SECONDS)
        self._ship_last()
        self._shipper.close()

    def _is_locked(self) -> bool:
        """Wait until no other process ships this directory; return False if a stop was requested before."""
        waited = False
        while True:
            try:
                if self._shipper.lock():
                    return True
            except OSError as failure:
                self._refused(sentence_of(failure))
            else:
                if not waited:
                    self._report("another process ships this bus directory to Kafka: this one does once that has ended")
                waited = True
            if self._stopping.wait(_PAUSES[1]):
                return False

    def _ship_last(self) -> None:
        """Ship what the collector wrote last, unless the bus refuses it for too long: then its next start does."""
        deadline = time.monotonic() + LAST_SECONDS
        while time.monotonic() < deadline:
            self._samples_at = float("-inf")
            if self._ship():
                continue
            if not self._refusals:
                return
            time.sleep(_PAUSES[0])

    def _ship(self) -> bool:
        """Ship what is new; return whether there was something."""
        channels: list[Channel] = []
        try:
            channels = self._moved()
            shipped = self._shipper.round(*channels) if channels else 0
            if time.monotonic() - self._deleted_at > DELETE_SECONDS or self._stopping.is_set():
                self._deleted_at = time.monotonic()
                self._shipper.delete_shipped()
        except Exception as failure:  # noqa: BLE001 - the collector continues, whatever it is
            self._refused(sentence_of(failure))
            return False
        if channels:
            self._failing_since = None
            if self._refusals:
                self._report(f"the bus at {self._servers} takes records again")
            self._refusals = 0
        return bool(shipped)

    def _moved(self) -> list[Channel]:
        """Return the channels that have something new, as far as they are to be looked at now; all after a failure."""
        if self._refusals:
            return [*Channel]
        is_time = time.monotonic() - self._samples_at > SAMPLES_SECONDS
        if is_time:
            self._samples_at = time.monotonic()
        waits = {channel for (channel, _), size in self._shipper.counts.waiting.items() if size}
        return [
            channel
            for channel in Channel
            if (channel is Channel.REPLICATION or is_time) and (channel in waits or self._shipper.has_moved(channel))
        ]

    def _refused(self, sentence: str) -> None:
        self._shipper.counts.error = sentence
        if not self._refusals:
            self._failing_since = time.monotonic()
            self._report(f"{sentence}; what is collected waits in the bus directory, up to bus.max_bytes; trying again")
        self._stopping.wait(_PAUSES[min(self._refusals, len(_PAUSES) - 1)])
        self._refusals += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of now."""
        counts, positions = self._shipper.counts, dict(self._shipper.positions)
        yield GaugeMetricFamily(f"{PREFIX}bus_up", "1 while Kafka takes what is shipped.", int(counts.error is None))
        shipped = GaugeMetricFamily(
            f"{PREFIX}bus_shipped_position", "Position up to which Kafka has a log of the directory.", labels=_LOG
        )
        waiting = GaugeMetricFamily(
            f"{PREFIX}bus_waiting_bytes", "Bytes of a log that Kafka does not have yet.", labels=_LOG
        )
        for log, position in sorted(positions.items()):
            shipped.add_metric(log, position)
            waiting.add_metric(log, counts.waiting.get(log, 0))
        yield from (shipped, waiting)
        oldest = min(dict(counts.oldest).values(), default=None)
        age = 0.0 if oldest is None else max(time.time() - oldest / 1_000_000, 0.0)
        yield GaugeMetricFamily(
            f"{PREFIX}bus_oldest_waiting_seconds", "Age of the oldest record that Kafka does not have; 0 for none.", age
        )
        for name, text, value in (
            ("bus_shipped_records", "Records that Kafka has acknowledged.", counts.records),
            (
                "bus_cut_records",
                "Records that were too large for their topic, of which only the begin was shipped.",
                counts.cut,
            ),
            (
                "bus_lost_bytes",
                "Bytes that the directory deleted at its limit before Kafka had them.",
                counts.lost_bytes,
            ),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value)
