"""Who may write a table, why a write failed, and the entries of a Delta log as they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from streaming.delta.log.storage import open_table, reading, sole_writer, writing
from streaming.delta.log.table_log import actions_of, has_entry, has_moved, identity_of
from streaming.errors import ConfigurationError, IsrwatchError, TableRefused, TableUnreadable

HOLD = """
import pathlib, sys
from streaming.delta.log.storage import sole_writer
with sole_writer(pathlib.Path(sys.argv[1]), ["samples", "replication"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone_even_killed(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TableRefused, match="another job writes the tables"), sole_writer(tmp_path, ["replication"]):
            pass
        with sole_writer(tmp_path, ["incidents"]):
            pass
        holder.kill()
    with sole_writer(tmp_path, ["replication"]):
        pass


@pytest.mark.parametrize("is_folder", [False, True])
def test_where_the_tables_cannot_be_written_the_name_of_the_key_is_said(tmp_path: Path, *, is_folder: bool) -> None:
    if is_folder:
        (tmp_path / "tables" / ".replication.lock").mkdir(parents=True)
    else:
        (tmp_path / "tables").touch()
    with (
        pytest.raises(ConfigurationError, match=r"point tables\.directory"),
        sole_writer(tmp_path / "tables", ["replication"]),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DeltaError("parquet: No space left on device (os error 28)"), "disk is full, t .*free space"),
        (OSError(28, "No space left on device"), "disk is full, t .*stays"),
        (OSError(5, "Input/output error"), "cannot write t: Input/output error: its disk fails"),
        (OSError("Generic error: tcp connect"), "cannot write t: Generic error: tcp connect; repair its disk"),
    ],
)
def test_why_a_write_failed_is_one_sentence(error: Exception, sentence: str) -> None:
    with pytest.raises(IsrwatchError, match=sentence), writing("t"):
        raise error


def test_a_bug_of_ours_stays_a_bug() -> None:
    with pytest.raises(DeltaError, match="schema"), writing("t"):
        raise DeltaError("schema of the batch differs")


@pytest.mark.parametrize("name", ["prod\u0085eu", "prod\u2028eu", "prod\u2029eu", "prod\x1eeu"])
def test_only_a_line_feed_ends_an_action(tmp_path: Path, name: str) -> None:
    """Names stand in statistics as they are; Python has ten more characters at which it splits lines."""
    actions = [{"txn": {"appId": name, "version": 1}}, {"add": {"path": "part", "stats": name}}]
    (tmp_path / "_delta_log").mkdir()
    lines = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    (tmp_path / "_delta_log" / f"{3:020}.json").write_text(lines + "\n", encoding="utf-8")
    assert actions_of(tmp_path, 3) == actions


def test_a_table_that_may_not_be_looked_into_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", refused)
    with pytest.raises(TableUnreadable, match="Permission denied; run this as a user who may read"):
        open_table(tmp_path / "partition_changes")


def test_an_entry_that_may_not_be_looked_at_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", refused)
    for look in (has_entry, has_moved, identity_of):
        with pytest.raises(TableUnreadable, match="Permission denied; run this as a user who may read"):
            look(tmp_path / "partition_changes", 1)


def test_of_an_error_of_hadoop_its_cause_is_said_without_the_stack_of_java() -> None:
    said = (
        "Kernel error -> Generic HdfsObjectStore error\n  \x1b[31m↳\x1b[0m RPC error\n"
        "   \x1b[31m↳\x1b[0m org.apache.hadoop.hdfs.server.namenode.SafeModeException Name node is in safe mode.\n"
        "The reported blocks 0 needs additional 370 blocks.\n"
        "\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.newSafemodeException(FSNamesystem.java:1687)\n"
    )
    with pytest.raises(TableUnreadable) as told, reading("hdfs://127.0.0.1:8020/t"):
        raise OSError(said)
    assert "SafeModeException Name node is in safe mode.; check that the store answers" in str(told.value)
    assert "FSNamesystem.java" not in str(told.value)
