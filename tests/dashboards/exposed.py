"""What the exporter really exposes of a broker while a cluster is observed, as series of a scene."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import Observation, SnapshotReason, SourceKind
from tests.changes.conftest import Story
from tests.dashboards.scenes import STEPS, healthy

Step = tuple[float, Sequence[Observation]]
"""From which minute on, and what is observed then."""
_ABSENT: Final = "stale"  # as Prometheus marks a series that a scrape has no more


def series_of_broker(broker: int, steps: Iterable[Step]) -> dict[str, str]:
    """Give the values of each gauge of a broker that an alert reads."""
    read = {key for key in healthy() if key.startswith("broker_") and f'{{cluster="prod", broker="{broker}"}}' in key}
    values: dict[str, list[str]] = {key: [] for key in read}
    begins, expositions = zip(*_expositions(steps), strict=True)
    for minute, following, text in zip(begins, (*begins[1:], STEPS / 2), expositions, strict=True):
        for key, series in values.items():
            name = key.partition("{")[0]
            line = rf'^kafka_replication_{name}{{cluster="[^"]*",broker="{broker}"}} (.+)$'
            sample = re.search(line, text, re.MULTILINE)
            series.extend([sample[1] if sample else _ABSENT] * int(2 * (following - minute)))
    return {key: " ".join(series) for key, series in values.items()}


def _expositions(steps: Iterable[Step]) -> Iterator[tuple[float, str]]:
    state, snapshot, exposition = ReplicationState(), ReplicationSnapshot(), Exposition(60.0)
    for minute, observed in steps:
        touched = fold(state, observed).touched
        state.apply(touched)
        draft = SnapshotDraft(snapshot)
        for cluster in touched.clusters.values():
            draft.put_cluster(cluster, ())
        for one in touched.brokers.values():
            draft.put_broker(one)
        for partition in touched.partitions():
            draft.put_partition(partition)
        snapshot = draft.finish(0, observed[-1].occurred_not_after, 0)
        health = ExporterHealth("1", 0, 0.0, 0)
        yield minute, plain(exposition.render(snapshot, health, snapshot.read_at, ScrapeRequest())).decode()


class Removal:
    """Broker 3 is removed from a cluster, step by step."""

    def __init__(self, source_kind: SourceKind = SourceKind.METADATA_LOG) -> None:
        """Begin with a healthy cluster of four brokers; one partition is on brokers 1, 2 and 3."""
        self.story = Story("a:c1", source_kind)
        self.steps: list[Step] = []
        self.partition: dict[str, object] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "partition_epoch": 0}
        self.story.config("2")
        self.story.snapshot([self.partition], brokers=(1, 2, 3, 4))
        self._step(0)

    def stopped(self, minute: float, *, shuts_down: bool = True) -> Removal:
        """Stop it, on purpose or by a crash."""
        self._until(minute).broker(3, in_controlled_shutdown=shuts_down, fenced=True)
        if 3 in self.partition["replicas"]:  # type: ignore[operator]
            self._change(isr=(1, 2))
        return self._step(minute)

    def not_listed(self, minute: float) -> Removal:
        """Poll without it."""
        self.partition = {**self.partition, "isr": (1, 2)}
        self._until(minute).snapshot([self.partition], brokers=(1, 2, 4), reason=SnapshotReason.PERIODIC)
        return self._step(minute)

    def moved(self, minute: float) -> Removal:
        """Move its replicas to broker 4."""
        self._until(minute)
        self._change(replicas=(1, 2, 4), isr=(1, 2, 4))
        return self._step(minute)

    def unregistered(self, minute: float) -> Removal:
        """Unregister it."""
        self._until(minute).broker(3, registered=False, fenced=None, in_controlled_shutdown=None)
        return self._step(minute)

    def series(self) -> dict[str, str]:
        """Give what is exposed of it."""
        return series_of_broker(3, self.steps)

    def _change(self, **fields: object) -> None:
        epoch = len(self.steps)
        self.partition = {**self.partition, **fields, "partition_epoch": epoch}
        self.story.partition(**self.partition)  # type: ignore[arg-type]

    def _until(self, minute: float) -> Story:
        begin = self.steps[0][1][0].occurred_not_after
        return self.story.later(minute * 60 - (self.story.now - begin) / 1e6)

    def _step(self, minute: float) -> Removal:
        seen = sum(len(observed) for _, observed in self.steps)
        self.steps.append((minute, self.story.seen[seen:]))
        return self
