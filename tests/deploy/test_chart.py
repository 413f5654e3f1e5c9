"""The chart of Kubernetes, as far as it can be checked without helm; with helm and a server: ``tests/kubernetes``."""

from __future__ import annotations

import copy
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.chart_files import ADDRESS, CHART, SCHEMA, files, package, schema
from deploy.release.packages import version

ROOT = Path(__file__).parents[2]
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
EXAMPLES = sorted(path.name for path in CHART.glob("values-*.yaml"))
TEMPLATES = "".join(path.read_text() for path in sorted(CHART.glob("templates/**/*")) if path.is_file())
FREE = {"resources", "podSecurityContext", "securityContext", "labels"}
"""Values whose keys are not the chart's."""


def merged(over: Any, under: Any) -> Any:
    if isinstance(over, dict) and isinstance(under, dict):
        return {**under, **{key: merged(value, under.get(key)) for key, value in over.items()}}
    return over


def refused(values: Any) -> list[str]:
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(values)]


def leaves(values: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in values.items():
        below = isinstance(value, dict) and value and key not in FREE
        found |= leaves(value, f"{prefix}{key}.") if below else {prefix + key}
    return found


def test_chart_and_program_have_one_version() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (described["version"], described["appVersion"]) == (version(), version())


def test_the_schema_has_the_keys_of_the_configuration() -> None:
    assert SCHEMA.read_text() == schema(), "write it again: python -m deploy.chart_files --schema"


def test_there_are_values_for_three_platforms_and_the_schema_takes_them() -> None:
    assert EXAMPLES == ["values-bare.yaml", "values-msk.yaml", "values-strimzi.yaml"]
    assert refused(VALUES) == []
    for name in EXAMPLES:
        assert refused(merged(yaml.safe_load((CHART / name).read_text()), VALUES)) == [], name


@pytest.mark.parametrize("name", EXAMPLES)
def test_limited_egress_reaches_every_port_of_an_example(name: str) -> None:
    values = merged(yaml.safe_load((CHART / name).read_text()), VALUES)
    asked = json.dumps([values["clusters"], values["strimzi"]])
    ports = {int(port) for port in re.findall(r": ?(\d{4,5})\b", asked)}
    assert ports
    assert ports <= set(values["networkPolicy"]["egress"]["ports"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("colect", {}), ("mode", "pods"), ("image.tag", 5), ("persistence.size", "20GB"), ("export.replicas", "two"),
        ("settings.collect.pol_interval", "3s"), ("settings.collect.poll_interval", 3), ("settings.server", {}),
        ("clusters", [{"name": "a"}]), ("clusters", [{"name": "a", "bootstrap_servers": "b:1", "cluster_name": "msk"}]),
        ("strimzi.clusters", [{"name": "a", "authentication": "plain"}]), ("podMonitor.labels", ["release"]),
        ("networkPolicy.egress.ports", []),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Any) -> None:
    values = copy.deepcopy(VALUES)
    *folders, last = key.split(".")
    inner = values
    for folder in folders:
        inner = inner.setdefault(folder, {})
    inner[last] = value
    (sentence,) = refused(values)
    assert last in sentence or "cluster_name" in sentence


def test_templates_read_every_value_and_no_other() -> None:
    read = {each.rstrip(".") for each in re.findall(r"\.Values\.([\w.]+)", TEMPLATES)}
    known = leaves(VALUES) | {path.rpartition(".")[0] for path in leaves(VALUES)}
    assert read <= known | {"settings.alerts", "settings.export"}
    words = {part for path in leaves(VALUES) for part in path.split(".")}
    assert {word for word in words if not re.search(rf"\.{word}\b", TEMPLATES)} == set()


def test_rules_and_boards_are_the_generated_ones() -> None:
    generated = ROOT / "dashboards" / "generated"
    assert (CHART / "generated").resolve() == generated
    packed = files()
    boards = {path.name for path in generated.glob("*.json")}
    for folder in ("generated", "linked"):
        assert {name.removeprefix(f"{folder}/") for name in packed if name.startswith(folder)} == {
            *boards,
            "prometheus-rule.yaml",
        }
    for name in boards:
        assert packed[f"generated/{name}"] == (generated / name).read_bytes()
        assert ADDRESS.encode() in packed[f"linked/{name}"]
    assert ADDRESS in TEMPLATES


def test_the_package_is_the_same_each_time_and_has_every_file(tmp_path: Path) -> None:
    made = [package(tmp_path / name) for name in ("a", "b")]
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(fileobj=io.BytesIO(made[0].read_bytes())) as tar:
        assert tar.getnames() == [f"isrwatch/{name}" for name in files()]
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "templates/NOTES.txt"} <= files().keys()
