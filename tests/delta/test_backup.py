"""A backup that is taken while a job writes, deletes and compacts; it is restored, read, and continued from."""

from __future__ import annotations

import datetime as dt
import errno
import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.contracts.tables import PARTITION_CHANGES, TABLES
from streaming.delta import backup
from streaming.delta.backup import back_up, restore
from streaming.delta.log import maintenance
from streaming.delta.log.claim import EVERY_QUERY
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.storage import sole_writer
from streaming.delta.log.table_log import newest_version
from streaming.delta.store import objects
from streaming.errors import ConfigurationError, IsrwatchError, TableRefused, TableUnreadable
from streaming.jobs.application import QUERIES
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.jobs.shards.test_batch import rows
from tests.jobs.shards.test_power_cut import POLICY, Disk, Job, check_whole

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
STORY = long_story(seed=5, steps=40)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance deletes at once what the newest version does not need."""
    for name, often in (("COMMITS_BETWEEN_ROUNDS", 2), ("LOG_ENTRIES", 2), ("SECONDS_BETWEEN_SWEEPS", 0.0)):
        monkeypatch.setattr(maintenance, name, often)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path, POLICY)


def a_job(folder: Path, policy: RetentionPolicy) -> Job:
    job = Job(Disk(folder, random.Random(0)), STORY, policy)
    job.apply(20)
    job.follow()
    return job


def goes_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the job commit, derive, compact and delete between the steps of a backup; return what it looked up."""
    before, looked_up = ["partition_state", "partition_changes", "a file"], list[str]()

    def after_the_job_went_on(step: Callable[..., object], *given: Path) -> object:
        name = given[0].name if step is newest_version else "a file"
        if name in before:
            before.remove(name)
            for _ in range(3):
                job.apply(2)
                job.follow()
        looked_up.append(name)
        return step(*given)

    for name in ("newest_version", "repeat"):
        monkeypatch.setattr(backup, name, partial(after_the_job_went_on, getattr(backup, name)))
    return looked_up


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    "minutes", [pytest.param(10.0, id="files stay"), pytest.param(0.0, id="files go", marks=pytest.mark.long)]
)
def test_a_backup_is_a_prefix_and_the_job_continues_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float
) -> None:
    if minutes:
        monkeypatch.setattr(maintenance, "LOG_ENTRIES", 300)
    taken, job = tmp_path / "backup", a_job(tmp_path, RetentionPolicy(reader_minutes=minutes))
    with monkeypatch.context() as meanwhile:
        looked_up = goes_on(job, meanwhile)
        made = back_up(job.disk.tables, taken, NOW)

    assert job.position > 30, "it went on meanwhile"
    assert (looked_up.count("partition_changes") > 1) != bool(minutes), "and deleted what was to be copied, or not"
    assert json.loads((taken / backup.NAME).read_text())["versions"]["partition_changes"] == made.version
    before = content(taken)
    job.apply(len(STORY))
    restored = Disk(tmp_path / "other", job.disk.dice)
    assert restore(taken, restored.tables) == made
    again = Job(restored, STORY)
    applied = expected_changes(STORY[: again.position + 1])
    assert essence(rows(restored.tables, PARTITION_CHANGES.name)) == applied
    again.follow()
    last = {row["key"][1]: row["after"]["change_number"] for row in applied if row["after"]}
    assert {row["partition"]: row["change_number"] for row in rows(restored.tables, "partition_state")} == last
    again.apply(len(STORY))
    again.follow()
    check_whole(restored, STORY)
    assert content(taken) == before, "neither job has changed it"


def test_a_backup_that_was_interrupted_is_none_and_cannot_be_read(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(job.disk.tables, tmp_path / "whole", NOW)

    def interrupted(before: Iterator[int], step: Callable[..., object], *given: object) -> object:
        if next(before, None) is None:
            raise InterruptedError
        return step(*given)

    for steps in (made.files - 1, made.files, made.files + made.tables - 1):
        taken, before = tmp_path / f"after {steps}", iter(range(steps))
        with monkeypatch.context() as patched:
            for name in ("repeat", "_write_table"):
                patched.setattr(backup, name, partial(interrupted, before, getattr(backup, name)))
            with pytest.raises((InterruptedError, IsrwatchError)):
                back_up(job.disk.tables, taken, NOW)
        with pytest.raises(ConfigurationError, match="no backup in"):
            restore(taken, tmp_path / "restored")
        shown = CliRunner().invoke(app, ["state", "--tables", str(taken)])
        assert (shown.exit_code, "no tables in" in shown.output) == (2, True), shown.output


def test_a_backup_is_read_as_the_tables_are(tmp_path: Path, job: Job) -> None:
    taken = tmp_path / "backup"
    back_up(job.disk.tables, taken, NOW)
    for name in (table for table in TABLES if newest_version(job.disk.tables / table) >= 0):
        one, other = (sorted(map(repr, rows(tables, name))) for tables in (job.disk.tables, taken))
        assert other == one, name
    for command in (["tables"], ["state"], ["incidents"]):
        shown = CliRunner().invoke(app, [*command, "--tables", str(taken), "-o", "json"])
        assert shown.exit_code == 0, shown.output


def test_a_backup_goes_to_a_new_place_and_comes_back_to_one_without_tables(tmp_path: Path, job: Job) -> None:
    tables, taken = job.disk.tables, tmp_path / "backup"
    back_up(tables, taken, NOW)
    for wrong, reason in (
        (lambda: back_up(tables, taken, NOW), "is not empty; choose a new folder"),
        (lambda: back_up(tables, tables / "backup", NOW), "is within the folder of the tables"),
        (lambda: back_up(tmp_path / "none", tmp_path / "new", NOW), "no tables in .*none; point tables.directory"),
        (
            lambda: restore(taken, tables),
            r"there are tables in .*partition_changes.*; stop the job, and move them away",
        ),
        (lambda: restore(tables, tmp_path / "new"), "there is no backup in .*_backup.json is missing"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            wrong()
    with sole_writer(tmp_path / "new", ["samples"]), pytest.raises(TableRefused, match="another job writes"):
        restore(taken, tmp_path / "new")
    shutil.rmtree(taken / "broker_state")
    with pytest.raises(ConfigurationError, match="is not whole: it lacks what it had of broker_state"):
        restore(taken, tmp_path / "new")


def test_tables_that_lack_a_file_are_not_backed_up(tmp_path: Path, job: Job) -> None:
    tables = job.disk.tables
    lost = next((tables / "partition_state").rglob("*.parquet"))
    for file in (tables / "partition_state").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableUnreadable, match=f"lacks a file .*{lost.parent.name}"):
        back_up(tables, tmp_path / "backup", NOW)


def test_a_disk_without_links_gets_copies(tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    linked, copied = tmp_path / "linked", tmp_path / "copied"
    back_up(job.disk.tables, linked, NOW)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(objects.os, "link", refuse)
        back_up(job.disk.tables, copied, NOW)
    assert rows(copied, "partition_changes") == rows(linked, "partition_changes") != []
    files = {str(file.relative_to(copied)): file.stat().st_nlink for file in copied.rglob("*.parquet")}
    assert set(files.values()) == {1}
    assert {(linked / name).stat().st_nlink for name in files if "_delta_log" not in name} == {2}


def test_the_queries_whose_locks_a_restore_holds_are_all_there_are() -> None:
    assert set(EVERY_QUERY) == set(QUERIES)
