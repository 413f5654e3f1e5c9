"""The collector's own metrics: what each source reported, when, and which of them orders the partitions.

In a registry of their own; knows no HTTP. The reason of a refused poll becomes its health message.
"""

from __future__ import annotations

import time
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.registry import Collector as MetricFamilies

from streaming.movement import Motion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from prometheus_client import Metric

    from streaming.contracts.observations import Observation
    from streaming.sources.source import Source

PREFIX: Final = "isrwatch_collector_"
SOURCE: Final = ("cluster", "source")


@runtime_checkable
class OrderingSource(Protocol):
    """A source that may be the primary one."""

    @property
    def is_primary(self) -> bool:
        """True if partition state comes from it now."""


@runtime_checkable
class AskingSource(Protocol):
    """A source that asks every broker."""

    @property
    def unseen_brokers(self) -> Collection[int]:
        """Brokers that run and cannot be asked, as they lack the listener."""


@runtime_checkable
class MeteredSource(Protocol):
    """A source with metrics of its own."""

    metrics: MetricFamilies


def source_up(registry: CollectorRegistry) -> Gauge:
    """Register the gauge that says whether a source is answered."""
    return Gauge(f"{PREFIX}source_up", "1 if the last poll of a source was answered.", SOURCE, registry=registry)


class FamilyCollector(Protocol):
    """A registry, or what can be registered in one."""

    def collect(self) -> Iterable[Metric]:
        """Return its metrics."""


class MergedMetrics(MetricFamilies):
    """The metrics of several as those of one: each family once, with the samples of all."""

    def __init__(self, members: Callable[[], Sequence[FamilyCollector]]) -> None:
        self._members = members

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of now."""
        families: dict[str, Metric] = {}
        for member in self._members():
            for family in member.collect():
                merged = families.setdefault(family.name, copy(family))  # a member may return the same one again
                others = [] if merged.samples is family.samples else merged.samples
                merged.samples = [*others, *family.samples]
        yield from families.values()


class CollectorMetrics:
    """Counts what sources report; ``registry`` exposes it."""

    def __init__(self, sources: Sequence[Source], cluster: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, unused
        self.registry = CollectorRegistry()
        self._refusals: dict[str, str] = {}
        self.movements = {source.name: Motion() for source in sources}
        self._sources, self._cluster = sources, cluster
        ours: dict[str, Any] = {"labelnames": SOURCE, "registry": self.registry}
        self._observations = Counter(f"{PREFIX}observations", "Observations that were published.", **ours)
        self._undecodable = Counter(f"{PREFIX}undecodable", "Records that could not be decoded.", **ours)
        self._refused = Counter(f"{PREFIX}refused_polls", "Polls that the cluster refused or did not answer.", **ours)
        self._up = source_up(self.registry)
        self._published_at = Gauge(
            f"{PREFIX}last_publication_timestamp_seconds",
            "When a source last published an observation of a kind, since 1970.",
            labelnames=(*SOURCE, "kind"),
            registry=self.registry,
        )
        primary = Gauge(f"{PREFIX}primary_source", "1 if partition state comes from this source now.", **ours)
        unseen = Gauge(
            f"{PREFIX}unseen_brokers",
            "Brokers that run and have no listener of the name by which a source asks them: their samples are missing.",
            **ours,
        )
        for source in sources:
            for counter in (self._observations, self._undecodable, self._refused):
                counter.labels(self._cluster, source.name)
            if isinstance(source, MeteredSource):
                self.registry.register(source.metrics)
            if isinstance(source, AskingSource):
                unseen.labels(self._cluster, source.name).set_function(partial(_unseen, source))
            if isinstance(source, OrderingSource):
                primary.labels(self._cluster, source.name).set_function(partial(_primary, source))

    def published(self, source: Source, observations: Sequence[Observation], undecodable: int) -> None:
        """Count what a poll of a source reported, once it is on the bus."""
        self._refusals.pop(source.name, None)
        self._up.labels(self._cluster, source.name).set(1)
        self._observations.labels(self._cluster, source.name).inc(len(observations))
        self._undecodable.labels(self._cluster, source.name).inc(undecodable)
        for kind in {type(each).kind for each in observations}:
            self._published_at.labels(self._cluster, source.name, kind).set(time.time())

    def refused(self, source: Source, refusal: Exception) -> None:
        """Count a poll that was refused."""
        self._refusals[source.name] = f"{source.name}: {refusal}"
        self._up.labels(self._cluster, source.name).set(0)
        self._refused.labels(self._cluster, source.name).inc()

    def hanging(self) -> list[str]:
        """List the sources that neither got an answer nor read nor wrote anything for long: polls end in a second."""
        return [
            f"{name} hangs: no answer came, and nothing was read or written, for {work.still_seconds():.0f} s"
            for name, work in self.movements.items()
            if work.hangs()
        ]

    def problems(self) -> list[str]:
        """List why no partition state is read now, empty while a source reads it, and which sources hang."""
        return [*self.hanging(), *self._unread()]

    def _unread(self) -> list[str]:
        possible = [source for source in self._sources if isinstance(source, OrderingSource)]
        up = [source for source in possible if source.is_primary and source.name not in self._refusals]
        if up or not possible:
            return []
        refusals = [self._refusals[source.name] for source in possible if source.name in self._refusals]
        return refusals or ["no source has read partition state yet"]


def _unseen(source: AskingSource) -> float:
    return float(len(source.unseen_brokers))


def _primary(source: OrderingSource) -> float:
    return float(source.is_primary)
