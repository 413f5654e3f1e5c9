"""One installation of a run: clusters whose history is shipped to a bus of Kafka, and the drivers of the real job."""

from __future__ import annotations

import shutil
import time
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.directory import DirectoryPublisher
from streaming.bus.kafka.shipper import Shipper
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.table_log import newest_version
from streaming.delta.store.place import place_of
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.chaos.stage import EPOCH, PATIENCE, SECOND
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.logs import last_positions
from tests.plugins.pipeline import Pipeline, Program, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.standalone.machines import StandaloneMachines

LEASE_SECONDS: Final = 5
SECONDS_PLAYED: Final = 80
SECONDS_PER_PIECE: Final = 2
PARTITIONS: Final = 2


class FailOver(NamedTuple):
    """Seconds from the harm to the next commit, and what was done."""

    harm: str
    seconds: float


class StandaloneStage:
    """Where a run is played. ``active`` writes the tables, or starts to; ``standby`` waits, if there is one."""

    def __init__(self, folder: Path, machines: StandaloneMachines, seed: int, scenarios: list[str]) -> None:
        self.machines, self.dice = machines, Random(f"{seed} stage")
        self.pipeline = Pipeline(folder)
        self.place = place_of(f"{machines.store.url}/run-{seed}", machines.store.options)
        self.settings = bus_settings(machines.broker.bootstrap_servers, replication_partitions=PARTITIONS)
        self.publisher = DirectoryPublisher(self.pipeline.bus, segment_bytes=200_000, fsync=False)
        self.shipper = Shipper(self.pipeline.bus, self.settings)
        assert self.shipper.lock()
        self.sources = [self._source(number, seed, name) for number, name in enumerate(scenarios)]
        moments = range(0, SECONDS_PLAYED, SECONDS_PER_PIECE)
        self.pieces = [
            [each for source in self.sources for each in source.poll(Micros(EPOCH + second * SECOND))]
            for second in moments
        ]
        self.published = 0
        self.recoveries: list[FailOver] = []
        self.active: Program | None = None
        self.standby: Program | None = None

    @staticmethod
    def _source(number: int, seed: int, scenario: str) -> SimulatedSource:
        name = f"chaos-{number}"
        return SimulatedSource(
            load_scenario(scenario), seed=seed + number, cluster_id=ClusterId(f"id-of-{name}"), cluster=name,
            name=f"metadata_log:{name}", epoch=Micros(EPOCH),
        )  # fmt: skip

    # ------------------------------------------------------------------ publishing

    def publish(self, pieces: int) -> None:
        """Publish the next pieces of the history, and ship them."""
        for piece in self.pieces[self.published : self.published + pieces]:
            self.publisher.publish(piece)
        self.published += pieces
        while self.shipper.round():
            pass

    def heartbeat(self) -> None:
        """Publish one more piece while there is one, so that there is something to commit."""
        if self.published < len(self.pieces):
            self.publish(1)

    def version(self) -> int:
        return newest_version(self.place / PARTITION_CHANGES.name)

    def wait_for_commit(self, harm: str) -> None:
        """Wait until the tables have another version, or everything that was published; note how long it took."""
        before, began = self.version(), time.monotonic()

        def has_committed() -> bool:
            self.heartbeat()
            return self.version() > before or (self.published >= len(self.pieces) and self.is_applied())

        self.eventually(has_committed, f"a commit after {harm}")
        self.recoveries.append(FailOver(harm, time.monotonic() - began))

    def is_applied(self) -> bool:
        """Return whether the tables have the last record of each log."""
        rows = rows_of(self.place, "source_progress")
        applied = {(row["channel"], row["source"]): row["position"] for row in rows}
        return all(
            applied.get((str(channel), source), -1) >= position
            for (channel, source), position in last_positions(self.pipeline.bus).items()
        )

    # ------------------------------------------------------------------ drivers

    def submit(self, *options: str) -> Program:
        """Submit a job with a checkpoint of its own, from another folder."""
        name = f"driver-{len(self.pipeline.programs)}"
        folder = self.pipeline.directory / name
        folder.mkdir()
        storage = "".join(f'"{key}" = "{value}"\n' for key, value in self.machines.store.options.items())
        (folder / "isrwatch.toml").write_text(
            f'[bus.kafka]\nbootstrap_servers = "{self.settings.bootstrap_servers}"\n'
            f'replication_topic = "{self.settings.replication_topic}"\n'
            f'samples_topic = "{self.settings.samples_topic}"\n'
            f"replication_partitions = {PARTITIONS}\nsamples_partitions = {self.settings.samples_partitions}\n"
            "replication_factor = 1\nmin_insync_replicas = 1\n"
            f'[tables]\ndirectory = "{self.place}"\n[tables.storage]\n{storage}'
            f'[job]\ncheckpoint = "{folder / "checkpoint"}"\nlisten = ""\nlease = "{LEASE_SECONDS}s"\n'
        )
        command = self.machines.submit_command("--config", str(folder / "isrwatch.toml"), *options)
        return self.pipeline.run(name, command, cwd=self.pipeline.directory.parent, **self.machines.spark.environment())

    def submit_standby(self) -> None:
        """Submit a standby, and wait until its Spark is ready."""
        self.standby = program = self.submit("--standby")
        self.eventually(lambda: "standing by with Spark ready" in program.text(), "it stands by")

    def submit_active(self) -> None:
        """Submit a job that does not wait, and wait until it runs."""
        self.active = program = self.submit()
        self.eventually(lambda: "running" in program.text(), "the job runs")

    def fail_over(self) -> None:
        """Note that the standby is the active job now; without one, submit again as what supervises a driver does."""
        self.active, self.standby = self.standby, None
        if self.active is None:
            self.submit_active()

    def eventually(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; fail when a driver of this run has ended by itself, or time has run out."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = [each.name for each in (self.active, self.standby) if each and each.process.poll() is not None]
            assert not ended, f"{ended} ended before: {what}\n{self.logs()}"
            assert time.monotonic() < deadline, f"waited {PATIENCE} s for: {what}\n{self.logs()}"
            time.sleep(0.3)

    def logs(self) -> str:
        return "\n".join(f"--- {each.name}\n{each.text()[-2500:]}" for each in self.pipeline.programs[-3:])

    def close(self) -> None:
        self.publisher.close()
        self.shipper.close()
        self.pipeline.close()
        shutil.rmtree(self.pipeline.directory, ignore_errors=True)
