"""The files of a release that need no build: lists of materials, the package of jars, checksums, one version."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from deploy.release import packages, sbom
from deploy.release.__main__ import main
from streaming.runtime import jars

ROOT = Path(__file__).parents[2]


def test_the_list_of_materials_has_the_locked_packages_and_says_what_needs_what(tmp_path: Path) -> None:
    ours, _ = sbom.write(tmp_path / "one")
    document = json.loads(ours.read_text())
    refs = {each["bom-ref"] for each in document["components"]}
    pins = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE))
    names = {each["name"] for each in document["components"]}
    assert names <= pins
    assert pins - names >= {"hatchling", "pathspec", "pywin32"}, "what builds it, and what Windows needs, is not in it"
    needs = {each["ref"]: set(each["dependsOn"]) for each in document["dependencies"]}
    root = document["metadata"]["component"]["bom-ref"]
    assert set(needs) == refs | {root}
    assert set().union(*needs.values()) == refs, "each is needed by another one"
    (typer,) = (each for each in refs if each.startswith("pkg:pypi/typer@"))
    asked = {re.split(r"[^A-Za-z0-9_-]", line)[0].lower() for line in requires("typer") or () if "extra" not in line}
    assert {re.split("[/@]", each)[-2] for each in needs[typer]} == asked - {"colorama"}
    assert typer in needs[root]


def test_the_list_of_the_jars_has_the_sums_of_the_lock_and_is_written_alike_twice(tmp_path: Path) -> None:
    once, again = (sbom.write(tmp_path / name) for name in ("one", "two"))
    assert [each.read_bytes() for each in once] == [each.read_bytes() for each in again]
    document = json.loads(once[1].read_text())
    sums = {each["purl"]: each["hashes"][0]["content"] for each in document["components"]}
    locked = jars.groups()[jars.SPARK_KAFKA].jars
    assert sums == {f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}": each for jar, each in locked.items()}


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "charts" / "a.tgz").write_bytes(b"a")
    for _ in range(2):
        sums = packages.write_checksums(tmp_path)
    assert sums.read_text().splitlines() == [
        f"{hashlib.sha256(b'b').hexdigest()}  b.whl",
        f"{hashlib.sha256(b'a').hexdigest()}  charts/a.tgz",
    ]
    check = ["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0


def test_a_checkout_with_changes_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("deploy.release.__main__.changes", lambda: " M streaming/errors.py")
    monkeypatch.setattr(sys, "argv", ["release", "packages", "--directory", str(tmp_path)])
    assert main() == 1
    assert capsys.readouterr().err.endswith("would not have:\n M streaming/errors.py\n")
    assert list(tmp_path.iterdir()) == []


def test_the_version_has_one_place_and_the_changelog_begins_with_it() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == packages.version()
    written = re.compile(r"\b(?:isrwatch:|appVersion: *[\"']?)(\d+\.\d+\.\d+)")
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yaml", ".yml", ".md", ".toml"}]
    found = {number for path in (*files, *(ROOT / "docs").glob("*.md")) for number in written.findall(path.read_text())}
    assert found == {packages.version()}, "images and the chart have the version of pyproject.toml"


def test_the_pythons_that_are_tested_are_those_that_the_package_names() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert tuple(re.findall(r"Language :: Python :: (3\.\d+)", text)) == packages.PYTHONS
    assert f'requires-python = ">={packages.PYTHONS[0]}"' in text
