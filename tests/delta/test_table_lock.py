from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import DeltaError

from streaming.delta.log.table_lock import sole_writer, writing
from streaming.errors import ConfigurationError, IsrwatchError, TableRefused

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import pathlib, sys
from streaming.delta.log.table_lock import sole_writer
with sole_writer(pathlib.Path(sys.argv[1]), ["offsets", "replication"]):
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
        with sole_writer(tmp_path, ["metrics"]):
            pass
        holder.kill()
    with sole_writer(tmp_path, ["replication"]):
        pass


def test_a_file_where_the_tables_belong_is_refused_by_the_name_of_its_key(tmp_path: Path) -> None:
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
        (OSError(5, "Input/output error"), "cannot write t: .*Input/output error; repair its disk"),
    ],
)
def test_why_a_write_failed_is_one_sentence(error: Exception, sentence: str) -> None:
    with pytest.raises(IsrwatchError, match=sentence), writing("t"):
        raise error


def test_a_bug_of_ours_stays_a_bug() -> None:
    with pytest.raises(DeltaError, match="schema"), writing("t"):
        raise DeltaError("schema of the batch differs")
