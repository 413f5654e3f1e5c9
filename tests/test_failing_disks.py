"""Disks that fail, and file systems without locks: one sentence each, or it works."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from streaming.bus import log
from streaming.bus.directory import DirectoryPublisher
from streaming.bus.kafka.shipper import Shipper
from streaming.bus.segments import segments
from streaming.commands import app
from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, Status
from streaming.contracts.observations import Channel
from streaming.delta.log.storage import sole_writer
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.locks import has_locks
from streaming.runtime.folders import exclusive
from streaming.settings import KafkaBusSettings, Settings
from tests.plugins.failing_disk import FAILING, WITHOUT_LOCKS, let_fail

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = "poll:a"


@pytest.fixture
def publisher(tmp_path: Path) -> Callable[[], DirectoryPublisher]:
    return lambda: DirectoryPublisher(tmp_path / "bus", segment_bytes=1 << 20)


@pytest.mark.parametrize("number", WITHOUT_LOCKS)
def test_without_locks_the_bus_is_written_and_the_later_of_two_writers_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: Callable[[], DirectoryPublisher], number: int
) -> None:
    let_fail(monkeypatch, tmp_path, number, "flock")
    assert not has_locks(tmp_path)
    with closing(publisher()) as first, closing(publisher()) as second:
        first.publish_raw(Channel.REPLICATION, SOURCE, b"1")
        first.publish_raw(Channel.REPLICATION, SOURCE, b"2")
        second.publish_raw(Channel.REPLICATION, SOURCE, b"3")
        monkeypatch.setattr(log, "SECONDS_BETWEEN_LOOKS", 0.0)
        with pytest.raises(ConfigurationError, match="another process already writes the log of poll:a"):
            first.publish_raw(Channel.REPLICATION, SOURCE, b"4")
        second.publish_raw(Channel.REPLICATION, SOURCE, b"5")
    assert len({each.log_id for each in segments(tmp_path / "bus" / "replication" / "poll%3Aa")}) == 2


def test_without_locks_a_directory_is_shipped_and_the_cache_and_the_tables_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_fail(monkeypatch, tmp_path, errno.ENOLCK, "flock")
    assert Shipper(tmp_path / "bus", KafkaBusSettings(bootstrap_servers="127.0.0.1:1"), print).lock()
    with exclusive(tmp_path / "cache"), sole_writer(tmp_path / "tables", ["replication"]):
        assert (tmp_path / "tables").is_dir()


@pytest.mark.parametrize("number", FAILING)
def test_a_lock_that_cannot_be_asked_for_is_not_one_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: Callable[[], DirectoryPublisher], number: int
) -> None:
    let_fail(monkeypatch, tmp_path, number, "flock")
    said = os.strerror(number)
    with closing(publisher()) as failing, pytest.raises(IsrwatchError, match=f"the bus .*({said}|is full)"):
        failing.publish_raw(Channel.REPLICATION, SOURCE, b"1")
    with pytest.raises(ConfigurationError, match=f"{said}: .*; set ISRWATCH_CACHE"), exclusive(tmp_path / "cache"):
        pytest.fail("it was locked")
    with pytest.raises(OSError, match=said):
        Shipper(tmp_path / "bus", KafkaBusSettings(bootstrap_servers="127.0.0.1:1"), print).lock()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "mkdir", "scandir", "statvfs"])
@pytest.mark.parametrize("number", FAILING)
def test_whatever_fails_below_the_bus_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    let_fail(monkeypatch, tmp_path, number, call)
    with (
        closing(DirectoryPublisher(tmp_path / "bus", segment_bytes=1 << 20, max_bytes=1 << 20)) as failing,
        pytest.raises(IsrwatchError, match=f"the bus .*({os.strerror(number)}|is full)"),
    ):
        failing.publish_raw(Channel.REPLICATION, SOURCE, b"1")


@pytest.mark.parametrize(
    "command",
    [
        ["collect", "--simulate", "steady", "--bus", "{}/bus", "--listen", ""],
        ["job", "--bus", "{}/bus", "--tables", "{}/tables", "--checkpoint", "{}/checkpoint", "--listen", ""],
        ["state", "--tables", "{}/tables"],
        ["events", "--tables", "{}/tables"],
        ["incidents", "--tables", "{}/tables"],
        ["tables", "--tables", "{}/tables"],
        ["jars", "fetch", "delta"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("number", FAILING)
def test_a_command_on_a_failing_disk_ends_with_one_sentence_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], number: int
) -> None:
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))
    for folder in ("bus/replication", "tables/partition_changes/_delta_log", "checkpoint", "cache/jars"):
        (tmp_path / folder).mkdir(parents=True)
    let_fail(monkeypatch, tmp_path, number, "open", "mkdir", "scandir", "listdir", "stat", "flock")
    ended = CliRunner().invoke(app, [word.format(tmp_path) for word in command], prog_name="isrwatch")
    assert ended.exit_code in {1, 2}, ended.output
    assert isinstance(ended.exception, SystemExit)
    assert os.strerror(number) in ended.output.splitlines()[-1]
    assert "Traceback" not in ended.output


def test_the_doctor_finds_a_file_system_without_locks_and_one_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = CHECKS_OF_THE_MACHINE["folders"]
    assert {status for status, _ in folders(Settings())} == {Status.OK}
    let_fail(monkeypatch, tmp_path, errno.ENOLCK, "flock")
    found = [sentence for status, sentence in folders(Settings()) if status is Status.WARNING]
    assert found == [f"bus.directory: {tmp_path}: {log.NO_LOCKS}"]
    let_fail(monkeypatch, tmp_path, errno.EROFS, "open")
    found = [sentence for status, sentence in folders(Settings()) if status is Status.PROBLEM]
    assert len(found) == 3
    assert all(f"{tmp_path}: Read-only file system: mount its" in each for each in found)
