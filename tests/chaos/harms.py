"""The harms: name -> what is done to a running installation. Each one asserts what must follow at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from streaming.bus import log
from streaming.contracts.observations import Channel
from streaming.contracts.tables import SOURCE_PROGRESS
from streaming.delta.log import durable
from streaming.delta.log.table_log import newest_version, written_by
from streaming.errors import BusFull
from tests.chaos.stage import PATIENCE, ChaosStage
from tests.plugins.table_writes import write

WRITE = os.write


def kill_python(stage: ChaosStage) -> None:
    jvm = stage.running().jvm()
    os.kill(stage.running().pid, signal.SIGKILL)
    stage.publish_until(lambda: not Path(f"/proc/{jvm}/exe").exists(), "no JVM is left behind")
    stage.ended()


def kill_jvm(stage: ChaosStage) -> None:
    os.kill(stage.running().jvm(), signal.SIGKILL)
    output = stage.ended().text()
    assert "Java process ended; start the job again" in output, output[-3000:]


def kill_both(stage: ChaosStage) -> None:
    stage.kill()


def cut_power(stage: ChaosStage) -> None:
    """Of what was not flushed some is there, some is not, some is damaged; then the machine boots again.

    Deletions since a while ago are undone or not, each for itself. What the collector was writing may be torn, and it
    begins again a little before it; Spark's checkpoint is damaged anywhere.
    """
    with TemporaryDirectory(dir=stage.pipeline.directory) as folder:
        before = Path(folder)
        for place in (stage.pipeline.tables, stage.pipeline.bus):
            _mirror(place, before / place.name)
        stage.publish_pieces(stage.dice.randint(1, 3), wait=False)
        acknowledged = {file: file.stat().st_size for file in stage.pipeline.bus.rglob("*.log")}
        marks = _marks(stage)
        stage.publish_pieces(1, wait=False)
        time.sleep(stage.dice.random())
        stage.kill()
        stage.publisher.close()
        _undo_deletions(stage, before)
        if marks == _marks(stage):  # else the job has flushed what was published last
            for file in stage.pipeline.bus.rglob("*.log"):
                _damage_end(stage, file, acknowledged.get(file, 0))
    stage.open_bus()
    stage.published = max(stage.published - 1, 0)
    for file in [*stage.pipeline.checkpoint.rglob("*")]:
        if file.is_file():
            _damage(stage, file)
    _damage_unflushed(stage)


def _damage_unflushed(stage: ChaosStage) -> None:
    for path in stage.pipeline.tables.iterdir():
        mark = durable.read_mark(path) if path.is_dir() else None
        if mark is None:
            continue
        for version in range(mark.version + 1, newest_version(path) + 1):
            entry = path / "_delta_log" / f"{version:020}.json"
            for file in (*written_by(path, version), entry):
                _damage(stage, file)
        (path / "_flushed.json").write_text(json.dumps({"version": mark.version, "boot": "the one before"}))


def _mirror(place: Path, copy: Path) -> None:
    """Link every file of a folder, which is being written: what vanishes meanwhile is left out."""
    for file in [*place.rglob("*")] if place.is_dir() else []:
        target = copy / file.relative_to(place)
        with suppress(FileNotFoundError):
            if file.is_file() and file.stat().st_dev == place.parent.stat().st_dev:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)


def _undo_deletions(stage: ChaosStage, before: Path) -> None:
    for place in (stage.pipeline.tables, stage.pipeline.bus):
        for file in [*(before / place.name).rglob("*")]:
            original = place / file.relative_to(before / place.name)
            if file.is_file() and not original.exists() and original.parent.is_dir() and stage.dice.random() < 0.5:
                os.link(file, original)


def _marks(stage: ChaosStage) -> dict[str, object]:
    tables = stage.pipeline.tables
    return {path.name: durable.read_mark(path) for path in tables.iterdir() if path.is_dir()} if tables.exists() else {}


def _damage_end(stage: ChaosStage, file: Path, acknowledged: int) -> None:
    """Leave of what was written behind a size, and not acknowledged, whatever a disk may leave."""
    size = file.stat().st_size
    if size > acknowledged and stage.dice.random() < 0.7:
        os.truncate(file, stage.dice.randint(acknowledged, size))


def _damage(stage: ChaosStage, file: Path) -> None:
    """Leave of a file that was not flushed whatever a disk may leave."""
    match stage.dice.choice(["whole", "whole", "gone", "empty", "cut", "zeros"]):
        case "gone":
            file.unlink()
        case "empty":
            os.truncate(file, 0)
        case "cut":
            os.truncate(file, stage.dice.randrange(file.stat().st_size + 1))
        case "zeros":
            file.write_bytes(bytes(file.stat().st_size))
        case _:
            pass


def restore_tables(stage: ChaosStage) -> None:
    """The tables are brought back from a copy of some time ago; the bus goes on."""
    stage.kill()
    copy = stage.pipeline.directory / "copy of tables"
    shutil.copytree(stage.pipeline.tables, copy)
    stage.start()
    stage.publish_pieces(stage.dice.randint(1, 8))
    stage.kill()
    stage.remember_short_ids()
    _put_in_place(copy, stage.pipeline.tables)


def restore_bus(stage: ChaosStage) -> None:
    """The bus is brought back from a copy of some time ago, the collector's checkpoint with it; the job may run."""
    stage.publisher.close()
    copy, published = stage.pipeline.directory / "copy of bus", stage.published
    shutil.copytree(stage.pipeline.bus, copy)
    stage.open_bus()
    stage.publish_pieces(stage.dice.randint(1, 8))
    if stage.dice.random() < 0.5:
        stage.kill()
    stage.publisher.close()
    _put_in_place(copy, stage.pipeline.bus)
    stage.open_bus()
    stage.published, stage.lost_bus = published, True


def replace_bus(stage: ChaosStage) -> None:
    """The bus is lost with the collector's checkpoint: the next one reads the metadata log from its begin."""
    _apply_refused(stage)
    if stage.dice.random() < 0.5:
        stage.kill()
    stage.publisher.close()
    for entry in [*stage.pipeline.bus.iterdir()]:
        shutil.rmtree(entry, ignore_errors=True)
    stage.open_bus()
    stage.published, stage.lost_bus = 0, True


def _apply_refused(stage: ChaosStage) -> None:
    """Wait until what was refused is in the tables: nobody publishes it again."""
    deadline = time.monotonic() + PATIENCE
    while sum(row["records"] for row in stage.pipeline.rows("quarantine")) < stage.refused.total():
        assert time.monotonic() < deadline, f"what is refused is not in quarantine\n{stage.logs()}"
        time.sleep(0.2)


def _put_in_place(copy: Path, place: Path) -> None:
    """Replace what a folder holds, which may be a disk, by a copy."""
    for entry in [*place.iterdir()]:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(copy, place, dirs_exist_ok=True)
    shutil.rmtree(copy)


def drop_column(stage: ChaosStage) -> None:
    """The next start finds a table that lacks a column, as if it had been added since."""
    stage.kill()
    progress = DeltaTable(str(stage.pipeline.tables / SOURCE_PROGRESS.name))
    rows = pa.table(QueryBuilder().register("t", progress).execute("select * from t"))
    write(progress, rows.drop_columns(["log_id"]), "overwrite")


def jump_job_clock(stage: ChaosStage) -> None:
    """The clock of the job's machine jumps while it runs, and once more some time later."""
    for _ in range(2):
        stage.running()
        stage.set_job_clock(stage.dice.choice([-7_200, -60, 60, 7_200, 172_800]))
        stage.publish_pieces(2)


def jump_collector_clock(stage: ChaosStage) -> None:
    """The clock of the collector's machine is ahead for a while."""
    stage.collector_ahead, stage.has_jumped = stage.dice.choice([30, 3_000, 200_000]) * 1_000_000, True
    stage.publish_pieces(3)
    stage.collector_ahead = 0


def fill_bus(stage: ChaosStage) -> None:
    """The disk of the bus is full at some byte: the collector waits, and publishes again what it had begun."""
    ballast = stage.fill(stage.pipeline.bus)
    os.truncate(ballast, max(0, ballast.stat().st_size - stage.dice.randrange(8_192)))
    refused = False
    while not refused and (published := stage.published) < len(stage.pieces):  # a piece may take a few bytes
        try:
            stage.publish_pieces(1, wait=False)
        except BusFull:
            refused, stage.published = True, published
    ballast.unlink()


def stop_cleanly(stage: ChaosStage) -> None:
    job = stage.running()
    stage.job = None
    assert job.stop() == 0, job.text()[-3000:]


def lose_last_commit(stage: ChaosStage) -> None:
    stage.kill()
    for file in _newest(stage, "commits"):
        file.unlink()


def lose_last_offsets(stage: ChaosStage) -> None:
    stage.kill()
    for file in _newest(stage, "offsets"):
        file.unlink()


def empty_last_offsets(stage: ChaosStage) -> None:
    stage.kill()
    for file in _newest(stage, "offsets"):
        os.truncate(file, 0)
        if stage.dice.random() < 0.5:
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def tear_metadata(stage: ChaosStage) -> None:
    stage.kill()
    for file in stage.pipeline.checkpoint.glob("*/metadata"):
        os.truncate(file, file.stat().st_size // 2)
        file.with_name(".metadata.crc").unlink(missing_ok=True)


def lose_checkpoint(stage: ChaosStage) -> None:
    stage.kill()
    shutil.rmtree(stage.pipeline.checkpoint, ignore_errors=True)  # the folder itself may be a disk


def fill_tables(stage: ChaosStage) -> None:
    _fill(stage, stage.pipeline.tables)


def fill_checkpoint(stage: ChaosStage) -> None:
    _fill(stage, stage.pipeline.checkpoint)


def second_driver(stage: ChaosStage) -> None:
    first = stage.running()
    second = stage.pipeline.start(f"second-{len(stage.pipeline.programs)}", "job", *stage.pipeline.job_arguments())
    code = second.wait(PATIENCE)
    assert code != 0, second.text()
    assert "another job writes the tables" in second.text(), second.text()
    assert "running" not in second.text(), "it stops before it writes"
    assert first.process.poll() is None, first.text()[-3000:]


def freeze_driver(stage: ChaosStage) -> None:
    """A driver is paused, another machine (its file system has no locks) takes over and commits, the first resumes."""
    old = stage.running()
    os.kill(old.pid, signal.SIGSTOP)
    for lock in stage.pipeline.tables.glob(".*.lock"):
        lock.unlink()
    stage.start()
    commits = stage.commits()
    stage.publish_until(lambda: stage.commits() > commits, "the second driver commits")
    os.kill(old.pid, signal.SIGCONT)
    stage.publish_until(lambda: "another job writes" in old.text(), "the first driver stops")
    old.kill()
    stage.kill()


def copy_collector(stage: ChaosStage) -> None:
    """A second collector publishes everything from the beginning, under its own name."""
    copy = f"metadata_log:copy-{len(stage.copies)}"
    published = [observed for piece in stage.pieces[: stage.published] for observed in piece]
    stage.publisher.publish([replace(observed, source=copy) for observed in published])
    stage.copies.append(copy)


def kill_collector(stage: ChaosStage) -> None:
    """The collector is killed in the middle of a record; the next one begins a little before it."""
    stage.publisher.close()
    piece = stage.pieces[min(stage.published, len(stage.pieces) - 1)]
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        with suppress(BaseException):
            publisher = stage.open_bus()
            publisher.publish(piece[: len(piece) // 2])
            log.os.write = _write_half  # type: ignore[attr-defined]
            publisher.publish(piece[len(piece) // 2 :])
        os._exit(1)
    stage.open_bus()
    stage.published = max(stage.published - 2, 0)


def publish_nonsense(stage: ChaosStage) -> None:
    for channel in Channel:
        for payload in (b"no JSON at all", b'{"v": 1, "kind": "dream"}', b"\x00\xff"):
            stage.publish_refused(channel, payload)


HARMS: dict[str, Callable[[ChaosStage], None]] = {
    harm.__name__: harm
    for harm in (
        kill_python,
        kill_jvm,
        kill_both,
        cut_power,
        stop_cleanly,
        lose_last_commit,
        lose_last_offsets,
        empty_last_offsets,
        tear_metadata,
        lose_checkpoint,
        fill_tables,
        fill_checkpoint,
        second_driver,
        freeze_driver,
        copy_collector,
        kill_collector,
        publish_nonsense,
        restore_tables,
        restore_bus,
        replace_bus,
        fill_bus,
        jump_job_clock,
        jump_collector_clock,
        drop_column,
    )
}


def _newest(stage: ChaosStage, log_name: str) -> list[Path]:
    """Return the newest file of a log of Spark's checkpoint, of every query."""
    logs = stage.pipeline.checkpoint.glob(f"*/{log_name}")
    numbered = [[file for file in folder.iterdir() if file.name.isdecimal()] for folder in logs]
    return [max(files, key=lambda file: int(file.name)) for files in numbered if files]


def _fill(stage: ChaosStage, folder: Path) -> None:
    """Fill a disk up to some byte: the job reports it and waits; when there is space again it continues by itself."""
    job = stage.running()
    ballast = stage.fill(folder)
    os.truncate(ballast, max(0, ballast.stat().st_size - stage.dice.choice([0, stage.dice.randrange(300_000)])))
    stage.publish_until(lambda: "free space" in job.text(), f"the job notices that {folder.name} is full")
    ballast.unlink()
    commits = stage.commits()
    stage.publish_until(lambda: stage.commits() > commits, "the job continues")
    assert job.process.poll() is None, job.text()[-3000:]


def _write_half(file: int, data: bytes) -> int:
    WRITE(file, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
