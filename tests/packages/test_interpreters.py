"""Every Python that the package names installs it and starts it: a real broker's incident, as on the empty machine.

3.11 is that of ``test_roles.py``, 3.13 that of ``test_empty_machine.py``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.release.packages import ROOT
from deploy.sandbox import Sandbox
from tests.packages.first_incident import first_incident
from tests.packages.machines import Machine, folder, interpreter, root

pytestmark = [pytest.mark.packages, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(2400)]


def installed_and_started(machine: Machine, cluster: Sandbox, say: Callable[[str], None]) -> str:
    seconds = machine.install("isrwatch[all]")
    version = machine.run("isrwatch/bin/python", "--version").strip()
    first_incident(machine, cluster)
    say(f"\n{machine.name}, {version}: installed in {seconds:.0f} s, {machine.megabytes()} MB, and started")
    return version


def test_python_3_14_of_the_next_debian(
    dist: Path, pip_cache: Path, cluster: Sandbox, say: Callable[[str], None]
) -> None:
    with root("forky", dist, pip_cache) as machine:
        assert installed_and_started(machine, cluster, say).startswith("Python 3.14.")


def test_python_3_12_where_this_machine_has_one_and_else_every_locked_wheel_is_there(
    dist: Path, pip_cache: Path, tmp_path: Path, cluster: Sandbox, say: Callable[[str], None]
) -> None:
    python = interpreter("3.12")
    if python is None:
        lock = (ROOT / "requirements" / "run.txt").read_text().replace("pyspark==", "# pyspark==")
        (tmp_path / "run.txt").write_text(lock)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "wheels")]
        wheels = ["--python-version=3.12", "--only-binary=:all:", "--requirement", str(tmp_path / "run.txt")]
        subprocess.run([*pip, *wheels], check=True)
        say("\nthere is no Python 3.12 here: every locked wheel is there, and nothing was started")
        return
    with folder(dist, pip_cache, python) as machine:
        assert installed_and_started(machine, cluster, say).startswith("Python 3.12.")
