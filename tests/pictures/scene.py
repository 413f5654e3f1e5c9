"""A scenario as what Prometheus would have scraped: played in the model, folded by the job's own batches, exposed.

The tables are real, and so are their reader and the exposition; only Spark, the scrapes and the clock are not.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import ExporterHealth, TableHealth
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import PARTITION_CHANGES, TABLES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.progress import ProgressTable
from streaming.jobs.incidents import IncidentsBatch
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.plugins.played import PlayedJob

SECOND: Final = 1_000_000
SCRAPE_SECONDS: Final = 15
STALE_SECONDS: Final = 60.0
CLUSTER: Final = "prod"
_POLLS: Final = 3
"""Batches between two scrapes."""


@dataclass(frozen=True)
class Scene:
    """What is played: a scenario, from a moment on; for its last seconds nothing is observed any more.

    Attributes:
        begin: seconds since 1970.
        seconds: how long it lasts.
        blind_seconds: of these, how long collector and job are stopped at the end.
        others: names of more clusters, and the second of the scene at which each of them stays.
    """

    scenario: Path
    begin: int
    seconds: int
    blind_seconds: int = 0
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """When it is over, in seconds since 1970."""
        return self.begin + self.seconds


class Job(PlayedJob):
    """The batches of the job, and the tables that derive from theirs."""

    def __init__(self, tables: Path) -> None:
        super().__init__(tables)
        self._incidents = IncidentsBatch(tables, 30.0, 120.0)
        self._changes = ChangeReader(tables / PARTITION_CHANGES.name)
        self._progress = {channel: ProgressTable(tables, channel) for channel in self.batches}

    def derive(self, now: int) -> None:
        """Write the derived tables, the incidents, and how far every source was applied."""
        self.project()
        for added in self._changes.poll():
            self._incidents.apply([added])
        lag = SourceLag(bus_end=self.position, behind_bytes=0, is_query_up=True, restarts=0, reported_at=Micros(now))
        for channel, table in self._progress.items():
            states, version = self.batches[channel].sources()
            table.replace([(state, lag) for state in states], version)


def _scrapes(scene: Scene, tables: Path) -> Iterator[tuple[int, str]]:
    """Yield the time and the exposition of every scrape."""
    source = SimulatedSource(
        load_scenario(scene.scenario), seed=1, cluster_id=ClusterId("id-of-prod"), cluster=CLUSTER,
        name="metadata_log:collector-1", epoch=Micros(scene.begin * SECOND),
    )  # fmt: skip
    job, exposition = Job(tables), Exposition(STALE_SECONDS)
    moment = 0.0  # of the clock by which the reader rests
    reader = TablesReader(tables, monotonic=lambda: moment)
    for scraped in range(0, scene.seconds, SCRAPE_SECONDS):
        now = (scene.begin + scraped) * SECOND
        if scraped < scene.seconds - scene.blind_seconds:
            for step in range(_POLLS):
                job.apply(now - (_POLLS - 1 - step) * SCRAPE_SECONDS * SECOND // _POLLS, source)
            job.derive(now)
        moment = now / SECOND
        snapshot = reader.refresh()
        readings = tuple(TableHealth(name, True, 0.4, 0.02) for name in TABLES)
        health = ExporterHealth("1.0", snapshot.version, 0.02, 0, tables=readings)
        yield now // SECOND, plain(exposition.render(snapshot, health, now, ScrapeRequest())).decode()


_OF_CLUSTERS: Final = tuple(f"kafka_replication_{room}_" for room in ("cluster", "incident", "source"))
_VERSION: Final = 'kafka_replication_cluster_feature_level{{cluster="{}",feature="metadata.version"}} {}'
"""The model has no versions."""


def _with_others(scene: Scene, scrapes: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Add what is about clusters as a whole of the other ones: what the first one was at some second of the scene."""
    kept: dict[str, list[str]] = {}
    for index, (name, second) in enumerate(scene.others.items()):
        lines = scrapes[second // SCRAPE_SECONDS][1].splitlines()
        own = [line for line in lines if line.startswith((*_OF_CLUSTERS, *(f"# TYPE {each}" for each in _OF_CLUSTERS)))]
        source = "poll" if index % 5 == 4 else "metadata_log"
        text = "\n".join(
            [*own, "# TYPE kafka_replication_cluster_feature_level gauge", _VERSION.format(CLUSTER, 14 + index % 17)]
        )
        text = text.replace(f'cluster="{CLUSTER}"', f'cluster="{name}"')
        kept[name] = text.replace('primary_source="metadata_log"', f'primary_source="{source}"').splitlines()
    for at, text in scrapes:
        yield at, "\n".join([text.rstrip(), *(line for lines in kept.values() for line in lines)])


def _openmetrics(scrapes: Iterator[tuple[int, str]], target: Path) -> None:
    """Write all scrapes in one file, each family together, as promtool reads them."""
    kinds: dict[str, str] = {}
    lines: dict[str, list[str]] = defaultdict(list)
    for at, text in scrapes:
        family = ""
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                family = name.removesuffix("_total") if kind == "counter" else name
                kinds[family] = kind
            elif not line.startswith("#"):
                lines[family].append(f"{line} {at}")
    with target.open("w") as file:
        for name, samples in lines.items():
            file.write(f"# TYPE {name} {kinds[name]}\n" + "\n".join(samples) + "\n")
        file.write("# EOF\n")


def write_blocks(scene: Scene, folder: Path) -> Path:
    """Play a scene into the storage of a Prometheus.

    Args:
        scene: what is played.
        folder: for the tables and the storage; it must be empty.

    Returns:
        the storage.
    """
    folder.mkdir(parents=True)
    text, storage = folder / "scrapes.om", folder / "storage"
    _openmetrics(_with_others(scene, list(_scrapes(scene, folder / "tables"))), text)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(storage)]
    subprocess.run(command, check=True, capture_output=True)
    return storage
