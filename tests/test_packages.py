"""Other distributions have packages of the same names: a start says so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isrwatch

ROOT = Path(__file__).parents[1]
START = "import isrwatch; isrwatch.main()"


def started(*paths: Path, command: str = "--version") -> subprocess.CompletedProcess[str]:
    """Start the console script with these folders first on the path."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['isrwatch', '{command}']; {START}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT]))},
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_all_packages_of_this_installation_are_ours() -> None:
    assert isrwatch.foreign_package() is None
    assert started().stdout.startswith("isrwatch ")


@pytest.mark.parametrize("name", isrwatch.PACKAGES)
def test_a_package_of_another_distribution_is_named_with_its_owner(tmp_path: Path, name: str) -> None:
    package, info = tmp_path / name, tmp_path / f"mosaic_{name}-1.0.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text('"""Streams training data."""\nraise SystemExit("their code ran")\n')
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mosaic-{name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    found = started(tmp_path)
    sentence = (
        f"the package {name} is not that of isrwatch but of the distribution mosaic-{name}: install isrwatch into"
    )
    assert found.stderr.startswith(sentence)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)


def test_a_folder_of_that_name_is_named_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards" / "__init__.py").touch()
    assert f"but of the folder {tmp_path}/dashboards: install isrwatch" in started(tmp_path).stderr
