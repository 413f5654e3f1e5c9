"""One installation under harm: the history of a Kafka cluster, the bus it is published on, and the real job."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.durations import duration_text
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.plugins.pipeline import Pipeline, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.observations import Observation
    from tests.chaos.schedule import JobStart, Schedule

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
SECONDS_PLAYED = 120
SECONDS_PER_PIECE = 2
SOURCE = "metadata_log:first"
DISK_BYTES = 64 << 20
SECONDS_FOR_A_COMMIT = 0.5
CLOCK = Path(__file__).parent / "clock"
PATIENCE = 400.0  # seconds; a busy machine is no difference between tables


class ChaosStage:
    """Where a schedule is played. ``job`` is the running one, None between two runs of it."""

    def __init__(self, directory: Path, schedule: Schedule) -> None:
        self.dice = Random(f"{schedule.seed} stage")
        self.pipeline = Pipeline(directory)
        self.job: Program | None = None
        self.copies: list[str] = []
        self.refused: Counter[tuple[str, bytes]] = Counter()  # (channel, bytes) -> how often it was published
        self.source = SimulatedSource(
            load_scenario(schedule.scenario),
            seed=schedule.seed,
            cluster_id=ClusterId("chaos"),
            cluster="chaos",
            name=SOURCE,
            epoch=Micros(EPOCH),
        )
        moments = range(0, SECONDS_PLAYED, SECONDS_PER_PIECE)
        self.pieces = [list(self.source.poll(Micros(EPOCH + second * SECOND))) for second in moments]
        self.published = 0
        self.lost_bus = False  # what was refused of a lost bus is not on the one that is left
        self.collector_ahead = 0  # microseconds, of the collector's clock
        self.has_jumped = False
        self.short_ids: set[tuple[str, str]] = set()  # (short id, long id) that tables had which are gone
        self._starts = list(schedule.starts)
        self._disks: list[Path] = []
        self.publisher = self.open_bus()

    def open_bus(self) -> DirectoryPublisher:
        """Open the bus as a restarted collector does."""
        self.publisher = DirectoryPublisher(self.pipeline.bus, segment_bytes=20_000, fsync=False)
        return self.publisher

    # ------------------------------------------------------------------ publishing

    def publish_pieces(self, pieces: int, *, wait: bool = True) -> None:
        """Publish the next pieces of the history; while a job runs, each after the one before was committed."""
        for _ in range(pieces):
            before = self.commits()
            self.publish(self.pieces[self.published] if self.published < len(self.pieces) else [])
            self.published = min(self.published + 1, len(self.pieces))
            deadline = time.monotonic() + SECONDS_FOR_A_COMMIT
            while wait and self.job and self.commits() == before and time.monotonic() < deadline:
                time.sleep(0.005)

    def publish(self, observed: list[Observation]) -> None:
        if self.collector_ahead:
            observed = [
                replace(item, collected_at=Micros(item.collected_at + self.collector_ahead)) for item in observed
            ]
        self.publisher.publish(observed)
        for copy in self.copies:
            self.publisher.publish([replace(item, source=copy) for item in observed])

    def remember_short_ids(self) -> None:
        """Remember the ids of incidents that people may have seen, before the tables are replaced."""
        self.short_ids |= {(row["short_id"], row["incident_id"]) for row in self.pipeline.rows("incidents")}

    def publish_refused(self, channel: Channel, payload: bytes) -> None:
        self.publisher.publish_raw(channel, SOURCE, payload)
        self.refused[channel, payload] += 1

    def commits(self) -> int:
        return len(list((self.pipeline.tables / "partition_changes" / "_delta_log").glob("*.json")))

    def publish_until(self, condition: Callable[[], object], what: str) -> None:
        """Publish until a condition holds; after the end of the history, unparseable records keep the job busy."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"timed out waiting for: {what}\n{self.logs()}"
            if self.published == len(self.pieces):
                self.publish_refused(Channel.REPLICATION, b"more")
            self.publish_pieces(1)

    # ------------------------------------------------------------------ the job

    def start(self) -> Program:
        """Start the job as the schedule says: with more tasks, another trigger, smaller batches."""
        start = self._starts.pop(0) if len(self._starts) > 1 else self._starts[0]
        name = f"job-{len(self.pipeline.programs)}"
        program = self.pipeline.start(name, *self.job_arguments(start), **self.environment(start))
        self.pipeline.eventually(lambda: "running" in program.text(), "the job runs", program, PATIENCE)
        self.job = program
        return program

    def environment(self, start: JobStart) -> dict[str, str]:
        """Give a job its Spark configuration, and a clock that ``jump_job_clock`` sets."""
        return {
            "PYSPARK_SUBMIT_ARGS": f"--master local[{start.tasks}] pyspark-shell",
            "PYTHONPATH": os.pathsep.join((str(CLOCK), str(Path(__file__).parents[2]))),
            "CHAOS_CLOCK": str(self.pipeline.directory / "clock"),
        }

    def set_job_clock(self, seconds: float) -> None:
        """Set the clock of running and future jobs ahead, or back."""
        draft = self.pipeline.directory / ".clock"
        draft.write_text(str(seconds))
        draft.replace(self.pipeline.directory / "clock")

    def job_arguments(self, start: JobStart) -> list[str]:
        directory = self.pipeline.directory
        (directory / "isrwatch.toml").write_text(
            f"[advanced]\nbatch_bytes = {start.batch_bytes}\n"
            f'trigger_interval = "{duration_text(start.trigger_seconds)}"\n'
            f'projection_interval = "{duration_text(start.projection_seconds)}"\n'
        )
        return ["job", "--config", str(directory / "isrwatch.toml"), *self.pipeline.job_arguments()]

    def running(self) -> Program:
        return self.job or self.start()

    def ended(self) -> Program:
        """Wait for the end of the job's process and of its JVM, and for no clean exit code."""
        job, self.job = self.running(), None
        code = job.wait(PATIENCE)
        assert code != 0, f"{job.name} ended with {code}\n{job.text()[-3000:]}"
        job.kill()  # the JVM, should it have outlived its driver
        return job

    def kill(self) -> None:
        """Kill driver and JVM at once, as a power cut would."""
        self.running().kill()
        self.job = None

    def logs(self) -> str:
        return "\n".join(f"--- {each.name}\n{each.text()[-2500:]}" for each in self.pipeline.programs[-2:])

    # ------------------------------------------------------------------ disks

    def give_disk(self, folder: Path) -> None:
        """Put a small disk of its own under a folder."""
        if folder in self._disks:
            return
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(folder)]
        subprocess.run(mount, check=True)
        self._disks.append(folder)

    def fill(self, folder: Path) -> Path:
        """Fill the disk under a folder up to the last byte; return the file that fills it."""
        ballast = folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return ballast

    def close(self) -> None:
        self.publisher.close()
        self.pipeline.close()
        for disk in self._disks:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
        shutil.rmtree(self.pipeline.directory, ignore_errors=True)
