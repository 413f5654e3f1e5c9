"""Power cuts, clocks that jump and full disks, at any moment: nothing is lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.contracts.observations import Observation
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES, TABLES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import durable, maintenance
from streaming.delta.log.durable import ORDER, cut_unflushed, flush, flushed_version
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.storage import open_table, sole_writer
from streaming.delta.log.table_log import newest_version
from streaming.errors import TableRefused, TableUnreadable
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.jobs.shards.test_batch import published, rows
from tests.jobs.shards.test_sample_tables import ASKED, metric, offsets, records, tables
from tests.plugins.batches import store_progress

POLICY = RetentionPolicy(reader_minutes=0.0)  # maintenance deletes whatever it may


class Machine:
    """How often it has booted."""

    boots = 0


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(durable, "boot", lambda: str(machine.boots))
    monkeypatch.setattr(maintenance, "COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr(maintenance, "LOG_ENTRIES", 8)
    monkeypatch.setattr(maintenance, "SECONDS_BETWEEN_SWEEPS", 0.0)
    return machine


class Disk:
    """The tables, and a copy of them as they were when they were flushed last."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.tables, self.flushed, self.dice = folder / "tables", folder / "flushed", dice
        self.tables.mkdir(parents=True)

    def flush(self) -> None:
        flush(self.tables)
        self.remember()

    def remember(self) -> None:
        shutil.rmtree(self.flushed, ignore_errors=True)
        shutil.copytree(self.tables, self.flushed)

    def cut_power(self) -> None:
        """Leave of each file that was written, replaced or deleted since the last flush whatever a disk may leave."""
        names = {
            file.relative_to(folder)
            for folder in (self.tables, self.flushed)
            for file in folder.rglob("*")
            if file.is_file()
        }
        for name in sorted(names):
            now, before = self.tables / name, self.flushed / name
            new = now.read_bytes() if now.exists() else None
            old = before.read_bytes() if before.exists() else None
            if new == old:
                continue
            torn = [] if new is None else [b"", new[: self.dice.randrange(len(new) + 1)], bytes(len(new))]
            left = self.dice.choice([new, new, old, *torn])
            now.parent.mkdir(parents=True, exist_ok=True)
            now.unlink(missing_ok=True) if left is None else now.write_bytes(left)


class Job:
    """What the job does with a log of the bus, without Spark."""

    def __init__(self, disk: Disk, story: list[Observation], policy: RetentionPolicy = POLICY) -> None:
        self.disk, self.story = disk, story
        cut_unflushed(disk.tables)
        disk.remember()
        self.batch = ReplicationBatch(disk.tables, policy)
        self.incidents = IncidentsBatch(disk.tables, 30.0, 120.0, policy)
        self.position = max((self.batch.at(source).position for source in {each.source for each in story}), default=-1)

    def apply(self, size: int) -> None:
        begin = self.position + 1
        self.batch.apply(published(self.story[begin : begin + size], start=begin))
        self.position = min(begin + size, len(self.story)) - 1

    def follow(self) -> None:
        """Derive the other tables."""
        self.batch.project()
        log = self.disk.tables / PARTITION_CHANGES.name
        self.incidents.apply(ChangeReader(log, self.incidents.version).poll())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_after_power_cuts_the_tables_are_as_without_them(tmp_path: Path, seed: int, machine: Machine) -> None:
    dice = random.Random(seed)
    story = long_story(seed=seed, steps=50)
    disk = Disk(tmp_path, dice)
    job = Job(disk, story)
    disk.flush()
    deleted, cuts = -1, 0
    while job.position < len(story) - 1:
        match dice.choice(["apply", "apply", "apply", "follow", "flush", "cut"]):
            case "apply":
                job.apply(dice.randrange(1, 12))
            case "follow":
                job.follow()
            case "flush":
                disk.flush()
                deleted = job.position  # the bus may delete what the tables held then
            case _:
                disk.cut_power()
                machine.boots += 1
                job, cuts = Job(disk, story), cuts + 1
                assert job.position >= deleted, "what the bus has deleted is not lost"
    job.follow()

    assert cuts
    check_whole(disk, story)


def check_whole(disk: Disk, story: list[Observation]) -> None:
    """Compare the tables with what an undisturbed job makes of the story."""
    expected = expected_changes(story)
    assert essence(rows(disk.tables, PARTITION_CHANGES.name)) == expected
    events = sorted(row["event_id"] for row in rows(disk.tables, "replication_events"))
    assert events == sorted(event for row in expected for event in row["events"])
    last = {row["key"][1]: row["after"]["change_number"] for row in expected if row["after"]}
    assert {row["partition"]: row["change_number"] for row in rows(disk.tables, "partition_state")} == last
    plain = Disk(disk.tables.with_name("plain"), disk.dice)
    other = Job(plain, story)
    other.apply(len(story))
    other.follow()
    assert incidents(disk) == incidents(plain) != []


def incidents(disk: Disk) -> list[dict[str, object]]:
    """The incidents, but for what says in which version they changed last."""
    columns = {"as_of_version", "carried"}
    found = [
        {name: value for name, value in row.items() if name not in columns} for row in rows(disk.tables, INCIDENTS.name)
    ]
    return sorted(found, key=lambda row: str(row["incident_id"]))


class Samples:
    """The job with a log of samples, from wherever its tables say that they are."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        cut_unflushed(disk.tables)
        disk.remember()
        self.batch = SampleBatch(disk.tables, POLICY)

    def apply(self, size: int, deleted: int) -> None:
        begin = max(self.batch.at(ASKED).position, deleted) + 1
        self.batch.apply(SAMPLED.slice(begin, size))


# Each of a key of its own, so that none replaces one that was lost.
SAMPLED = records(*(
    sample for at in range(1, 21) for sample in (offsets(at, at), replace(metric(at, f"m{at}"), source=ASKED))
))  # fmt: skip


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_after_power_cuts_no_table_lacks_a_sample_that_is_said_to_be_applied(
    tmp_path: Path, seed: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that the cut has interrupted has moved some marks only; how far samples are is told by the last table."""
    dice, disk = random.Random(seed), Disk(tmp_path, random.Random(seed))
    job, noted, deleted, cuts = Samples(disk), -1, -1, 0
    store_progress(disk.tables, job.batch)
    disk.flush()
    while cuts < 3 or job.batch.at(ASKED).position < len(SAMPLED) - 1:
        match dice.choice(["apply", "apply", "apply", "store", "flush", "cut"]):
            case "apply":
                job.apply(dice.randrange(1, 7), deleted)
            case "store":
                store_progress(disk.tables, job.batch)
            case "flush":
                disk.flush()
                noted, deleted = (
                    job.batch.at(ASKED).position,
                    noted,
                )  # the bus deletes what had been applied the last time
            case _:
                write_mark, left = durable._write_mark, iter(range(dice.randrange(4)))
                with monkeypatch.context() as interrupted, suppress(StopIteration):
                    interrupted.setattr(durable, "_write_mark", lambda *mark: (next(left), write_mark(*mark)))  # noqa: B023
                    flush(disk.tables)
                machine.boots += 1
                job, cuts = Samples(disk), cuts + 1

    plain = SampleBatch(tmp_path / "plain")
    plain.apply(SAMPLED)
    assert tables(disk.tables) == tables(tmp_path / "plain")


def test_all_tables_are_flushed_each_behind_those_that_it_follows_from() -> None:
    assert sorted(ORDER) == sorted(TABLES)
    assert ORDER.index("quarantine") < ORDER.index("partition_changes") < ORDER.index("partition_state")
    assert ORDER.index("broker_metrics") < ORDER.index("isr_reconciliation") < ORDER.index("source_progress")


def test_a_damaged_version_that_was_not_flushed_is_cut_off_without_another_boot(tmp_path: Path) -> None:
    disk, story = Disk(tmp_path, random.Random(0)), long_story(seed=1, steps=30)
    job = Job(disk, story)
    job.apply(10)
    disk.flush()
    log = disk.tables / PARTITION_CHANGES.name
    version = newest_version(log)
    job.apply(10)
    (log / "_delta_log" / f"{version + 1:020}.json").write_text("")

    cut = cut_unflushed(disk.tables)

    assert list(cut) == [PARTITION_CHANGES.name]
    assert newest_version(log) == flushed_version(log) == version
    again = Job(disk, story)
    again.apply(len(story))
    assert essence(rows(disk.tables, PARTITION_CHANGES.name)) == expected_changes(story)


def test_a_kill_and_a_restart_cut_nothing(tmp_path: Path) -> None:
    disk, story = Disk(tmp_path, random.Random(0)), long_story(seed=1, steps=30)
    job = Job(disk, story)
    disk.flush()
    job.apply(10)
    assert cut_unflushed(disk.tables) == {}
    assert Job(disk, story).position == job.position


def test_versions_that_are_gone_although_they_were_flushed_are_refused_in_a_sentence(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(0))
    job = Job(disk, long_story(seed=1, steps=30))
    job.apply(10)
    disk.flush()
    log = disk.tables / PARTITION_CHANGES.name
    (log / "_delta_log" / f"{newest_version(log):020}.json").unlink()
    with pytest.raises(TableUnreadable, match="had been flushed to the disk; bring back the whole folder"):
        cut_unflushed(disk.tables)


def test_a_table_that_was_never_flushed_is_left_alone(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(0))
    Job(disk, long_story(seed=1, steps=30)).apply(10)
    assert cut_unflushed(disk.tables) == {}
    table = open_table(disk.tables / PARTITION_CHANGES.name)
    assert table is not None
    assert flushed_version(disk.tables / PARTITION_CHANGES.name) is None


def test_a_mark_that_cannot_be_gone_back_to_cuts_nothing(tmp_path: Path, machine: Machine) -> None:
    """A program that knows no marks has written the tables, and maintained them, since."""
    disk, story = Disk(tmp_path, random.Random(0)), long_story(seed=1, steps=40)
    job = Job(disk, story)
    disk.flush()
    marks = {path: (path / "_flushed.json").read_text() for path in disk.tables.iterdir() if path.is_dir()}
    for path in marks:
        (path / "_flushed.json").unlink()
    while job.position < len(story) - 1:
        job.apply(4)
    log = disk.tables / PARTITION_CHANGES.name
    assert open_table(log) is not None
    for path, mark in marks.items():
        (path / "_flushed.json").write_text(mark)
    for entry in sorted((log / "_delta_log").glob("*.json"))[:3]:
        entry.unlink()
    before = sorted(file.name for file in (log / "_delta_log").glob("*.json"))
    machine.boots += 1

    assert cut_unflushed(disk.tables) == {}

    assert sorted(file.name for file in (log / "_delta_log").glob("*.json")) == before


@pytest.mark.parametrize("content", [b"", b'{"version": 99, "size": 1}'])
def test_a_checkpoint_that_was_not_flushed_is_forgotten(tmp_path: Path, machine: Machine, content: bytes) -> None:
    disk, story = Disk(tmp_path, random.Random(0)), long_story(seed=1, steps=40)
    job = Job(disk, story)
    job.apply(10)
    job.apply(10)
    disk.flush()
    log = disk.tables / PARTITION_CHANGES.name / "_delta_log"
    version = newest_version(log.parent)
    (log / f"{version:020}.checkpoint.parquet").write_bytes(b"torn")
    (log / "_last_checkpoint").write_bytes(content or json.dumps({"version": version, "size": 4}).encode())
    machine.boots += 1

    assert cut_unflushed(disk.tables) == {}

    again = Job(disk, story)
    again.apply(len(story))
    assert essence(rows(disk.tables, PARTITION_CHANGES.name)) == expected_changes(story)


def test_a_new_table_whose_one_version_is_torn_is_made_anew(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(0))
    Job(disk, long_story(seed=1, steps=10))
    log = disk.tables / PARTITION_CHANGES.name
    (log / "_delta_log" / f"{0:020}.json").write_text("")
    cut_unflushed(disk.tables)
    assert Job(disk, long_story(seed=1, steps=10)).position == -1


def test_tables_that_another_job_writes_are_not_cut(tmp_path: Path, machine: Machine) -> None:
    disk = Disk(tmp_path, random.Random(0))
    job = Job(disk, long_story(seed=1, steps=10))
    disk.flush()
    job.apply(5)
    machine.boots += 1
    with sole_writer(disk.tables, ["samples"]), pytest.raises(TableRefused, match="another job writes the tables"):
        cut_unflushed(disk.tables, ["replication", "samples"])
    assert cut_unflushed(disk.tables, ["replication", "samples"])


def test_a_damaged_mark_is_a_sentence(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(0))
    Job(disk, long_story(seed=1, steps=10))
    disk.flush()
    (disk.tables / PARTITION_CHANGES.name / "_flushed.json").write_text("{")
    for attempt in (flush, cut_unflushed):
        with pytest.raises(TableUnreadable, match="cannot read the table"):
            attempt(disk.tables)


JUMPS = (-7_200, -60, 0, 60, 7_200, 172_800)  # seconds


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, now, ahead = random.Random(1), time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: now() + ahead[0] * 1_000_000_000)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    monkeypatch.setattr(maintenance, "COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr(maintenance, "LOG_ENTRIES", 8)
    disk, story = Disk(tmp_path, dice), long_story(seed=1, steps=45)
    job, starts = Job(disk, story), 1

    while job.position < len(story) - 1:
        ahead[0] = dice.choice(JUMPS)
        job.apply(dice.randrange(1, 12))
        job.follow()
        if dice.random() < 0.3:
            job, starts = Job(disk, story), starts + 1

    assert starts > 2
    check_whole(disk, story)


ROOT = Path(__file__).parents[3]


def test_a_full_disk_at_any_byte_costs_and_doubles_nothing(tmp_path: Path) -> None:
    apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    script = [*apart, sys.executable, "-m", "tests.jobs.shards.small_disk", str(tmp_path)]
    run = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout) > 3
