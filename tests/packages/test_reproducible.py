"""Two builds of one commit are equal byte for byte, wherever and whenever they are made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.release import sbom
from deploy.release.packages import KAFKA_JARS, ROOT, commit_seconds, version
from streaming.runtime import jars

pytestmark = [pytest.mark.packages, pytest.mark.long]
ELSEWHERE = (
    "import os, sys, pathlib; os.umask(0o077); from deploy.release.packages import build; "
    "build(pathlib.Path(sys.argv[1]))"
)


def test_a_build_by_another_user_in_another_place_and_time_zone_is_the_same(dist: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TZ": "Pacific/Chatham", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "LANG": "C"}
    subprocess.run([sys.executable, "-c", ELSEWHERE, tmp_path / "again"], cwd=ROOT, env=environment, check=True)
    built = {each.name: each.read_bytes() for each in dist.iterdir()}
    assert len(built) == 3
    assert {each.name: each.read_bytes() for each in (tmp_path / "again").iterdir()} == built


def test_the_source_distribution_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"isrwatch-{version()}.tar.gz") as source:
        source.extractall(tmp_path, filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "again")]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_seconds())}
    subprocess.run(build, cwd=tmp_path / f"isrwatch-{version()}", env=environment, check=True, capture_output=True)
    (wheel,) = (tmp_path / "again").iterdir()
    assert wheel.read_bytes() == (dist / wheel.name).read_bytes()


def test_everything_in_the_wheel_is_in_the_commit_and_says_its_time(dist: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    committed = set(listed.stdout.splitlines())
    with zipfile.ZipFile(dist / f"isrwatch-{version()}-py3-none-any.whl") as wheel:
        names = {name.replace("streaming/conf/", "conf/") for name in wheel.namelist() if ".dist-info/" not in name}
        years = {each.date_time[0] for each in wheel.infolist()}
    assert names <= committed
    assert all(year >= 2026 for year in years)


def test_the_package_of_jars_has_those_of_the_lock(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"{jars.PACKAGE}-{version()}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if name.endswith(".jar")}
    assert names == {f"{jars.PACKAGE}/{jar.path}" for jar in jars.groups()[jars.SPARK_KAFKA].jars}


def test_the_lists_of_materials_follow_the_schema_of_cyclonedx(tmp_path: Path) -> None:
    validator = tmp_path / "validator"
    subprocess.run([sys.executable, "-m", "venv", validator], check=True)
    pip = [validator / "bin" / "pip", "install", "--quiet", "cyclonedx-python-lib[json-validation]"]
    subprocess.run(pip, check=True)
    for path in sbom.write(tmp_path / "lists"):
        program = (
            "import sys; from cyclonedx.validation.json import JsonStrictValidator as V; "
            "from cyclonedx.schema import SchemaVersion; print(V(SchemaVersion.V1_6).validate_str(sys.stdin.read()))"
        )
        said = subprocess.run(
            [validator / "bin" / "python", "-c", program],
            input=path.read_text(),
            text=True,
            capture_output=True,
            check=True,
        )
        assert said.stdout == "None\n", said.stdout
    assert json.loads(path.read_text())["metadata"]["component"]["name"] == KAFKA_JARS
