"""The API server takes every manifest as it is, and refuses one with a wrong field; the driver may what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.control_plane import Api

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANIFESTS: dict[str, dict[str, Any]] = {
    f"{file.name}: {each['kind']} {each['metadata']['name']}": each
    for file in sorted(FOLDER.glob("*.yaml"))
    for each in yaml.safe_load_all(file.read_text())
}
DRY_RUN = ("apply", "--dry-run=server", "--namespace", "restricted", "--filename")
DRIVER = "system:serviceaccount:restricted:isrwatch-job"


@pytest.fixture(scope="module")
def namespace(kubernetes: Api) -> str:
    """A namespace that lets no pod in that is not restricted, as Pod Security Standards have it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    kubernetes.call("POST", "/api/v1/namespaces", {"metadata": {"name": "restricted", "labels": labels}})
    return "restricted"


@pytest.mark.usefixtures("namespace")
def test_the_server_takes_them_together(kubernetes: Api) -> None:
    ran = kubernetes.kubectl(*DRY_RUN, str(FOLDER))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == len(MANIFESTS)


@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("name", MANIFESTS)
def test_the_server_takes_each_and_refuses_a_wrong_field(kubernetes: Api, name: str) -> None:
    ran = kubernetes.kubectl(*DRY_RUN, "-", given=yaml.safe_dump(MANIFESTS[name]))
    assert (ran.returncode, ran.stderr) == (0, "")
    wrong = {**MANIFESTS[name], "specification": {}}
    ran = kubernetes.kubectl(*DRY_RUN, "-", given=yaml.safe_dump(wrong))
    assert ran.returncode != 0
    assert 'unknown field "specification"' in ran.stderr


@pytest.mark.usefixtures("namespace")
def test_a_wrong_field_of_a_container_is_refused_by_its_name(kubernetes: Api) -> None:
    text = (FOLDER / "job.yaml").read_text().replace("livenessProbe", "livelinessProbe")
    ran = kubernetes.kubectl(*DRY_RUN, "-", given=text)
    assert ran.returncode != 0
    assert 'unknown field "spec.template.spec.containers[0].livelinessProbe"' in ran.stderr


def test_every_pod_passes_the_restricted_level(kubernetes: Api, namespace: str) -> None:
    pods = [each["spec"]["template"] for each in MANIFESTS.values() if "template" in each.get("spec", {})]
    (executor,) = [each for each in MANIFESTS.values() if "executor.yaml" in each.get("data", {})]
    template = yaml.safe_load(executor["data"]["executor.yaml"])
    template["spec"]["containers"][0]["image"] = "isrwatch:0.1.0"
    assert kubernetes.kubectl("apply", "--namespace", namespace, "--filename", str(FOLDER / "access.yaml")).stderr == ""
    for number, pod in enumerate([*pods, template]):
        pod["spec"].setdefault("volumes", [])
        claimed = {each["name"] for each in pod["spec"]["volumes"]}
        mounted = {each["name"] for each in pod["spec"]["containers"][0].get("volumeMounts", [])}
        pod["spec"]["volumes"] += [{"name": name, "emptyDir": {}} for name in mounted - claimed]
        made = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": f"pod-{number}"}}
        ran = kubernetes.kubectl(*DRY_RUN, "-", given=yaml.safe_dump(made))
        assert (ran.returncode, ran.stderr) == (0, ""), made
    del made["spec"]["securityContext"]
    assert "violates PodSecurity" in kubernetes.kubectl(*DRY_RUN, "-", given=yaml.safe_dump(made)).stderr


def test_the_driver_may_make_executors_and_nothing_else(kubernetes: Api, namespace: str) -> None:
    def may(verb: str, *what: str) -> bool:
        asked = ("auth", "can-i", verb, *what, "--namespace", namespace, "--as", DRIVER)
        return kubernetes.kubectl(*asked).stdout.strip() == "yes"

    applied = kubernetes.kubectl("apply", "--namespace", namespace, "--filename", str(FOLDER / "access.yaml"))
    assert applied.returncode == 0, applied.stderr
    for verb in ("create", "get", "list", "watch", "delete", "deletecollection"):
        assert may(verb, "pods"), verb
    for verb, *what in (("get", "secrets"), ("create", "pods", "--subresource=exec"), ("update", "roles")):
        assert not may(verb, *what), what
