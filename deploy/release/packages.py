"""Wheels and the source distribution, built from a commit: two builds of one commit are equal byte for byte.

Files of the checkout that are not in the commit are not in them. Times in them are those of the commit
(``SOURCE_DATE_EPOCH``), modes and order those of hatchling.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.runtime.jars import PACKAGE, SPARK_KAFKA, groups, jar_paths, sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""Versions of Python that isrwatch is installed and started on by ``make test-long``."""
KAFKA_JARS: Final = PACKAGE.replace("_", "-")
_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
description = "The jars of Spark's connector to Kafka, for isrwatch with Kafka as its bus."
readme = "README.md"
requires-python = ">=3.11"
license = "Apache-2.0"

[tool.hatch.build]
artifacts = ["*.jar"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""
_README: Final = """\
# {name}

The jars that `isrwatch job` needs when Kafka is its bus: `pip install 'isrwatch[kafka-bus]'`. Each is the file of this
checksum:

| jar | SHA-256 |
|---|---|
"""


def version() -> str:
    """Return the version of this checkout; ``pyproject.toml`` is the only place that has it."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def commit_seconds(commit: str = "HEAD") -> int:
    """Return when a commit was made, in seconds of Unix time."""
    return int(git("show", "--no-patch", "--format=%ct", commit))


def build(directory: Path, commit: str = "HEAD") -> list[Path]:
    """Build the source distribution and the wheels of a commit into a folder, and return their paths.

    Raises:
        MissingTool: a jar cannot be downloaded.
        subprocess.CalledProcessError: hatchling or git failed, and has said why.
    """
    seconds = commit_seconds(commit)
    with tempfile.TemporaryDirectory(prefix="isrwatch-release-") as scratch:
        checkout, jars = Path(scratch, "checkout"), Path(scratch, "jars")
        archive = Path(scratch, "checkout.tar")
        git("archive", "--format=tar", f"--output={archive}", commit)
        with tarfile.open(archive) as tar:
            tar.extractall(checkout, filter="data")
        lay_out_jars(jars)
        directory.mkdir(parents=True, exist_ok=True)
        _hatchling(checkout, directory, seconds, ["sdist", "wheel"])
        _hatchling(jars, directory, seconds, ["wheel"])
    names = (f"isrwatch-{version()}.tar.gz", f"isrwatch-{version()}-py3-none-any.whl")
    return [directory / name for name in (*names, f"{PACKAGE}-{version()}-py3-none-any.whl")]


def write_checksums(directory: Path) -> Path:
    """Write the SHA-256 of every file of a folder, as ``sha256sum --check SHA256SUMS`` reads it."""
    path = directory / "SHA256SUMS"
    files = sorted(each for each in directory.rglob("*") if each.is_file() and each != path)
    lines = [f"{sha256(each)}  {each.relative_to(directory)}\n" for each in files]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def lay_out_jars(folder: Path) -> None:
    """Write a project whose wheel has the jars of Spark's connector, and nothing else.

    Raises:
        MissingTool: a jar cannot be downloaded, or has another checksum than in the lock file.
    """
    locked = groups()[SPARK_KAFKA].jars
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Jars of Spark\'s connector to Kafka, by group."""\n', encoding="utf-8")
    for jar, path in zip(locked, jar_paths(SPARK_KAFKA), strict=True):
        (package / jar.group).mkdir(exist_ok=True)
        shutil.copyfile(path, package / jar.path)
    rows = "".join(f"| `{jar}` | `{checksum}` |\n" for jar, checksum in locked.items())
    (folder / "README.md").write_text(_README.format(name=KAFKA_JARS) + rows, encoding="utf-8")
    project = _PROJECT.format(name=KAFKA_JARS, version=version(), package=PACKAGE)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")


def _hatchling(project: Path, directory: Path, seconds: int, targets: Sequence[str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory.absolute())]
    command += [part for target in targets for part in ("--target", target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    subprocess.run(command, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL)


def git(*arguments: str) -> str:
    """Run git in the checkout, and return what it printed."""
    ran = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.strip()
