"""Which test file runs when, and in which process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.order import CLUSTER, SESSION, ordered, unit_of
from tests.plugins.sandbox import SHARED

CHECKOUT = Path(__file__).parents[2]
SPARK = (CHECKOUT / "tests/jobs/test_metrics.py", CHECKOUT / "tests/runtime/test_memory.py")
COUNTED = """
import os, pathlib

def test_one(): note()
def test_two(): note()

def note():
    with open("ran", "a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {pathlib.Path(__file__).name}\\n")
"""


def test_the_longest_comes_first_and_what_has_no_entry_before_all() -> None:
    short, long, new = Path("test_short.py"), Path("test_long.py"), Path("test_new.py")
    assert ordered([short, long, new], {short: 3.0, long: 9.0}) == [new, long, short]


def test_the_files_of_sparks_session_are_one_unit_that_counts_as_much_as_all_of_them() -> None:
    short, long = Path("test_short.py"), Path("test_long.py")
    seconds = {**dict.fromkeys(SPARK, 5.0), short: 9.0, long: 11.0}
    assert ordered(seconds, seconds) == [long, *SPARK, short]


def test_every_test_that_uses_sparks_session_is_in_that_unit(request: pytest.FixtureRequest) -> None:
    using = {item.path for item in request.session.items if "spark" in getattr(item, "fixturenames", ())}
    assert {str(path) for path in using if unit_of(path) != SESSION} == set()
    assert {unit_of(path) for path in SPARK} == {SESSION}


def test_every_test_of_a_shared_cluster_is_in_their_unit(request: pytest.FixtureRequest) -> None:
    using = {item.path for item in request.session.items if SHARED.keys() & {*getattr(item, "fixturenames", ())}}
    assert {str(path) for path in using if unit_of(path) not in {CLUSTER, SESSION}} == set()
    assert unit_of(CHECKOUT / "tests/sources/metadata_log/test_real_cluster.py") == CLUSTER


@pytest.mark.long
def test_a_file_stays_in_one_process_and_that_with_a_session_of_spark_joins_the_others(tmp_path: Path) -> None:
    session = '\nimport pytest\n@pytest.fixture\ndef spark(): pass\ndef test_it(spark: "object"): note()\n'
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"test_{name}.py").write_text(COUNTED + session * (name in "ad"))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nmarkers = process\n")
    command = [sys.executable, "-m", "pytest", "-n2", "--dist=loadfile", "--no-loadscope-reorder", str(tmp_path)]
    subprocess.run(
        [*command, "-p", "tests.plugins.order"],
        cwd=tmp_path, env={"PYTHONPATH": str(CHECKOUT)}, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    ran = re.findall(r"(gw\d) test_(.)", (tmp_path / "ran").read_text())
    where = {name: {worker for worker, each in ran if each == name} for name in "abcd"}
    assert [len(workers) for workers in where.values()] == [1, 1, 1, 1]
    assert where["a"] == where["d"]
