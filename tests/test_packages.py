"""Packages of ours and of others: one of the same name is named at the start; an extra has what its commands import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest

import isrwatch
from streaming.commands import COMMANDS

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMES_WITH = {"anyio": "starlette", "attrs": "grafanalib", "markupsafe": "jinja2", "py4j": "pyspark"}
ELSEWHERE = {
    "export": {"javaproperties"},  # reads the client files of clusters, which only who connects to them does
    "mcp": {"javaproperties"},
    "job": {"javaproperties"},
}
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


def declared(extra: str) -> set[str]:
    """Return the distributions that an extra asks for, those of the extras in it included, and those of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names: set[str] = set()
    for line in [*EXTRAS.get(extra, []), *project["dependencies"]]:
        if match := re.fullmatch(r"isrwatch\[(.*)\]", line):
            names |= set().union(*(declared(each) for each in match[1].split(",")))
        else:
            names.add(re.split(r"[^A-Za-z0-9_-]", line)[0].lower())
    return names | {name for name, by in COMES_WITH.items() if by in names}


def test_each_extra_asks_for_what_its_commands_import() -> None:
    graph = grimp.build_graph(*isrwatch.PACKAGES, include_external_packages=True, cache_dir=None)
    owners = packages_distributions()
    missing = {}
    for name, command in COMMANDS.items():
        module = command.target.split(":")[0]
        if command.extra in {"collect", "export", "job", "mcp"}:
            above = {each.split(".")[0] for each in graph.find_upstream_modules(module)} - {*isrwatch.PACKAGES}
            imported = {owner.lower().replace("_", "-") for each in above for owner in owners.get(each, ())}
            if left := imported - declared(command.extra) - ELSEWHERE.get(command.extra, set()):
                missing[name] = left
    assert missing == {}
