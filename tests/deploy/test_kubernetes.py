"""The manifests of Kubernetes, as far as they can be checked without a server; with one: ``tests/kubernetes``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.commands import COMMANDS, load
from streaming.settings import load as load_settings
from tests.end_to_end.test_large_form import MOST_COMMANDS, blocks_of, commands_in

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OBJECTS: list[dict[str, Any]] = [
    each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())
]
PODS: dict[str, dict[str, Any]] = {
    each["metadata"]["name"]: each["spec"]["template"] for each in OBJECTS if "template" in each.get("spec", {})
}
LISTEN = {"isrwatch-collector": "COLLECT", "isrwatch-job": "JOB", "isrwatch-exporter": "EXPORT"}
COMMANDS_OF = {"isrwatch-collector": "collect", "isrwatch-job": "job", "isrwatch-exporter": "export"}
ROUTES = {"collect": "streaming/web/status.py", "job": "streaming/web/status.py", "export": "exporters/web/server.py"}
HANGS = {"isrwatch-collector": "/-/alive", "isrwatch-job": "/-/alive", "isrwatch-exporter": "/-/healthy"}
"""What is 503 only while a program hangs: a probe that restarts it for anything else makes an outage longer."""


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] == kind}


def container(name: str) -> dict[str, Any]:
    (found,) = PODS[name]["spec"]["containers"]
    return dict(found)


def variables(name: str) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container(name)["env"]}


def test_there_is_a_workload_for_each_program() -> None:
    assert PODS.keys() == LISTEN.keys()


def test_every_image_is_that_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    assert set(re.findall(r"image[:=]\s*(\S+)", text)) == {f"isrwatch:{version}"}
    assert text.count("isrwatch:") == len(PODS) + 1, "and once for the executors"


@pytest.mark.parametrize("name", PODS)
def test_commands_and_options_exist(name: str) -> None:
    words = container(name)["args"]
    command = COMMANDS_OF[name]
    if name == "isrwatch-job":
        assert words[0] == "spark-submit"
        begin = words.index("/opt/isrwatch/deploy/spark/main.py")
        words = [command, *(part for word in words[begin + 1 :] for part in word.split("=", 1))]
    assert (words[0], words[0] in COMMANDS) == (command, True)
    known = {option for parameter in load(command).params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("name", PODS)
def test_variables_are_keys_of_the_configuration(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for variable, value in variables(name).items():
        if variable.startswith("ISRWATCH_"):
            monkeypatch.setenv(variable, (value or "isrwatch-collector-0").replace("$(POD_IP)", "10.1.2.3"))
    settings = load_settings(None)
    listening = {"COLLECT": settings.collect, "JOB": settings.job, "EXPORT": settings.export}[LISTEN[name]].listen
    (port,) = container(name)["ports"]
    assert (listening, port["name"]) == (f"10.1.2.3:{port['containerPort']}", "http")


@pytest.mark.parametrize("name", PODS)
def test_probes_ask_what_they_mean(name: str) -> None:
    probes = {kind: container(name)[kind]["httpGet"] for kind in ("livenessProbe", "readinessProbe", "startupProbe")}
    served = re.findall(r'Route\("(/-/\w+)"', (ROOT / ROUTES[COMMANDS_OF[name]]).read_text())
    assert {probe["path"] for probe in probes.values()} <= set(served)
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert [probes[kind]["path"] for kind in probes] == [HANGS[name], "/-/ready", HANGS[name]]


@pytest.mark.parametrize("name", PODS)
def test_no_container_may_gain_privileges_and_only_the_driver_has_a_token(name: str) -> None:
    assert PODS[name]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container(name)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    account = named("ServiceAccount")[PODS[name]["spec"]["serviceAccountName"]]
    assert account.get("automountServiceAccountToken", True) is (name == "isrwatch-job")
    assert named("Secret") == {}, "no secret is in a file of the repository"


@pytest.mark.parametrize("name", PODS)
def test_labels_ports_and_volumes_fit_together(name: str) -> None:
    (workload,) = [each for each in OBJECTS if each["metadata"]["name"] == name and "template" in each.get("spec", {})]
    labels = PODS[name]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    service = named("Service")[name]["spec"]
    assert service["selector"] == labels
    (port,) = service["ports"]
    assert (port["targetPort"], port["port"]) == ("http", container(name)["ports"][0]["containerPort"])
    made = {each["name"] for each in PODS[name]["spec"]["volumes"]}
    made |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
    assert {each["name"] for each in container(name)["volumeMounts"]} == made


def test_what_a_pod_refers_to_is_a_manifest_or_made_by_a_command_of_the_page() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    made = {(kind, name) for kind, name in re.findall(r"create (configmap|secret generic) (\S+)", page)}
    made |= {("configmap", name) for name in named("ConfigMap")}
    wanted = {("secret generic", each["secretRef"]["name"]) for name in PODS for each in container(name)["envFrom"]}
    wanted |= {
        ("configmap", each["configMap"]["name"])
        for name in PODS
        for each in PODS[name]["spec"]["volumes"]
        if "configMap" in each
    }
    assert wanted <= made


def test_the_page_has_few_commands_and_says_what_their_capitals_stand_for() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    found = [command for _, block in blocks_of(page) for command in commands_in(block)]
    assert 10 < len(found) <= MOST_COMMANDS
    words = {word for command in found for word in re.findall(r"(?<![\w-])[A-Z]{3,}(?![\w-])", command)}
    assert words == set(re.findall(r"^\| `([A-Z]+)` \|", page, re.MULTILINE))


def test_files_of_the_image_that_are_named_are_copied_into_it() -> None:
    copied = re.findall(r"^COPY (\S+) \S+$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    text = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    for path in re.findall(r"/opt/isrwatch/([\w./]+)", text):
        assert (ROOT / path).exists(), path
        assert any(Path(path).is_relative_to(each) for each in copied), path


def test_executors_are_as_the_bus_and_their_rights_ask() -> None:
    words = container("isrwatch-job")["args"]
    given = dict(word.removeprefix("--conf=").split("=", 1) for word in words if word.startswith("--conf="))
    assert given["spark.executor.cores"] == "1"
    assert given["spark.kubernetes.authenticate.executor.serviceAccountName"] == "isrwatch"
    (mount,) = [each for each in container("isrwatch-job")["volumeMounts"] if each["name"] == "executor"]
    template = Path(given["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == mount["mountPath"]
    assert template.name in named("ConfigMap")["isrwatch-executor"]["data"]
