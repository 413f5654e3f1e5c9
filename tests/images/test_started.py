"""Both images, built from Debian packages and started by crun: they work where nothing can be fetched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from deploy.images.plan import images
from deploy.release.packages import ROOT
from tests.images.containers import UID

pytestmark = [pytest.mark.images, pytest.mark.long, pytest.mark.timeout(3500)]
MADE = images()
WORDS = {"three": ("collect", "job", "export"), "one": ("run",)}


@pytest.fixture(scope="module")
def archives() -> Path:
    """Build the images of the commit; what was built before is kept."""
    subprocess.run([ROOT / ".ci" / "tools", "mmdebstrap", "buildah", "crun"], check=True)
    folder = ROOT / "build" / "images" / "dist"
    subprocess.run([sys.executable, "-m", "deploy.images", "build", "--directory", folder], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def seen(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Start them in a network of their own, and return what was seen."""
    folder = tmp_path_factory.mktemp("stage")
    program = [sys.executable, "-m", "tests.images.stage", archives, folder]
    isolated = ["unshare", "--net", "--mount", "--fork", "--kill-child"]
    ended = subprocess.run([*isolated, *program], cwd=ROOT, check=False)
    assert ended.returncode == 0
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    for act in WORDS:
        times = found[act]
        print(f"{act}: {times['ready seconds']} s to the first report, {times['incident seconds']} s to the incident")
    return found


def test_nothing_can_be_fetched_while_they_run(seen: dict[str, Any]) -> None:
    assert seen["interfaces"] == ["lo"]


@pytest.mark.parametrize("act", WORDS)
def test_a_killed_broker_is_an_incident_on_the_page(seen: dict[str, Any], act: str) -> None:
    (incident,) = seen[act]["incidents"]
    assert incident["short_id"] in seen[act]["page"]
    assert "orders" in json.dumps(incident)


@pytest.mark.parametrize("act", WORDS)
def test_every_health_check_answers(seen: dict[str, Any], act: str) -> None:
    assert seen[act]["health"] == {name: [0, "ok\n"] for name in WORDS[act]}


@pytest.mark.parametrize("act", WORDS)
def test_every_container_stops_cleanly(seen: dict[str, Any], act: str) -> None:
    assert seen[act]["exit codes"] == dict.fromkeys(WORDS[act], 0), seen[act]["logs"]


@pytest.mark.parametrize("act", WORDS)
def test_the_volume_has_what_a_user_without_a_name_has_written(seen: dict[str, Any], act: str) -> None:
    assert {"bus", "tables"} <= set(seen[act]["data"])
    assert {tuple(owner) for owner in seen[act]["data"].values()} == {(UID, 0)}


def test_nothing_else_was_written(seen: dict[str, Any]) -> None:
    assert seen["written"] == []


def test_the_commands_of_each_image_answer(seen: dict[str, Any]) -> None:
    commands = seen["commands"]
    for variant in MADE.variants:
        assert commands[f"{variant} --version"] == [0, f"isrwatch {MADE.version}\n"]
        for help_of in ("job --help", "collect --help", "export --help"):
            assert commands[f"{variant} {help_of}"][0] == 0
        assert "Traceback" not in commands[f"{variant} doctor"][1]
    code, said = commands["slim job"]
    assert (code, said.count("\n")) == (1, 1), "one sentence"
    assert "isrwatch[job]" in said


@pytest.mark.parametrize("variant", MADE.variants)
def test_the_archive_is_as_the_dockerfile_says(archives: Path, variant: str) -> None:
    with tarfile.open(archives / f"{MADE.file(variant)}.oci.tar") as tar:
        (described,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        config = json.load(tar.extractfile(described["Config"]) or pytest.fail("no config"))
    assert described["RepoTags"] == [MADE.tag(variant)]
    told = config["config"]
    assert told["User"] == f"{MADE.uid}:0"
    assert told["Entrypoint"] == list(MADE.variants[variant].entrypoint)
    assert told["Volumes"] == {"/data": {}}
    assert set(told["ExposedPorts"]) == {f"{port}/tcp" for port in MADE.ports}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told["Labels"]["org.opencontainers.image.revision"] == commit.stdout.strip()
    assert told["Labels"]["org.opencontainers.image.version"] == MADE.version


@pytest.mark.parametrize("variant", MADE.variants)
def test_the_list_of_materials_has_what_is_in_the_image(archives: Path, variant: str) -> None:
    document = json.loads((archives / f"{MADE.file(variant)}.oci.cdx.json").read_text())
    parts = {each["bom-ref"].partition("@")[0] for each in document["components"]}
    assert {"pkg:deb/debian/libc6", "pkg:deb/debian/python3", "pkg:pypi/deltalake", "pkg:pypi/isrwatch"} <= parts
    python = [each for each in document["components"] if each["purl"].startswith("pkg:pypi/")]
    pins = re.findall(r"^(\S+?)==", (ROOT / "requirements" / f"{variant}.txt").read_text(), re.MULTILINE)
    ours = {wheel.partition("-")[0].replace("_", "-") for wheel in MADE.wheels(variant)}
    assert {each["name"] for each in python} == ours | ({each["name"] for each in python} & set(pins))
    assert all(re.fullmatch("[0-9a-f]{64}", each["hashes"][0]["content"]) for each in python)
    jars = [each for each in document["components"] if each["name"].startswith("kafka-clients")]
    assert bool(jars) == (variant == "full")
    assert ("pkg:generic/openjdk" in parts) == (variant == "full")
