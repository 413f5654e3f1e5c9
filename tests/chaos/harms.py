"""The harms: name -> what is done to a running installation. Each one asserts what must follow at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.bus import log
from streaming.contracts.observations import Channel
from streaming.delta import durable
from streaming.delta.table_log import newest_version, written_by
from tests.chaos.stage import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.stage import ChaosStage

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
    """Of what was not flushed some is there, some is not, some is damaged; then the machine boots again."""
    stage.kill()
    for path in stage.pipeline.tables.iterdir():
        mark = durable.read_mark(path) if path.is_dir() else None
        if mark is None:
            continue
        for version in range(mark.version + 1, newest_version(path) + 1):
            entry = path / "_delta_log" / f"{version:020}.json"
            for file in (*written_by(path, version), entry):
                _damage(stage, file)
        (path / "_flushed.json").write_text(json.dumps({"version": mark.version, "boot": "the one before"}))


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
    )
}


def _newest(stage: ChaosStage, log_name: str) -> list[Path]:
    """Return the newest file of a log of Spark's checkpoint, of every query."""
    logs = stage.pipeline.checkpoint.glob(f"*/{log_name}")
    numbered = [[file for file in folder.iterdir() if file.name.isdecimal()] for folder in logs]
    return [max(files, key=lambda file: int(file.name)) for files in numbered if files]


def _fill(stage: ChaosStage, folder: Path) -> None:
    """Fill a disk: the job reports it and waits; when there is space again it continues by itself."""
    job = stage.running()
    ballast = stage.fill(folder)
    stage.publish_until(lambda: "free space" in job.text(), f"the job notices that {folder.name} is full")
    ballast.unlink()
    commits = stage.commits()
    stage.publish_until(lambda: stage.commits() > commits, "the job continues")
    assert job.process.poll() is None, job.text()[-3000:]


def _write_half(file: int, data: bytes) -> int:
    WRITE(file, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
