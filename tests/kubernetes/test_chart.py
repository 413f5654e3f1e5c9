"""The API server takes every object of the chart, with the definitions of the operators; a release goes up and back.

The controllers make the pods. Nothing schedules or runs them, so no pod gets ready and nothing waits for that here;
what runs is in ``test_deployed.py`` and ``test_upgraded.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.chart import CHART, forms, packaged, rendered, run_helm
from tests.kubernetes.control_plane import Api
from tests.kubernetes.programs import definitions
from tests.plugins.local_http import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.chart, pytest.mark.long]
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
DRY_RUN = ("apply", "--dry-run=server", "--filename", "-")


@pytest.fixture(scope="module")
def server(kubernetes: Api, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """The API server with the resources of the operators."""
    for file in definitions(tmp_path_factory.mktemp("definitions")):
        ran = kubernetes.kubectl("apply", "--server-side", "--filename", str(file))
        assert ran.returncode == 0, ran.stderr
    kubernetes.kubectl("wait", "--for", "condition=established", "crd", "--all", "--timeout", "60s")
    return kubernetes


@pytest.fixture
def namespace(server: Api, request: pytest.FixtureRequest) -> str:
    """A namespace that lets no pod in that is not restricted, as Pod Security Standards have it."""
    name = f"n{abs(hash(request.node.nodeid)) % 10**8}"
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    return name


def applied(server: Api, namespace: str, *objects: dict[str, Any]) -> tuple[int, str, str]:
    ran = server.kubectl(*DRY_RUN, "--namespace", namespace, given=yaml.safe_dump_all(objects))
    return ran.returncode, ran.stderr, ran.stdout


def pod_templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that workloads, and Spark, make."""
    found = [each["spec"]["template"] for each in objects if "template" in each.get("spec", {})]
    for each in objects:
        if text := each.get("data", {}).get("executor.yaml"):
            executor = yaml.safe_load(text)
            executor["spec"]["containers"][0]["image"] = "isrwatch:0.1.0-full"
            found.append(executor)
    return found


@pytest.mark.parametrize("form", ["bare", "msk", "strimzi", "spark"])
def test_the_server_takes_every_object_and_refuses_a_wrong_field(
    server: Api, namespace: str, form: str, tmp_path: Path
) -> None:
    objects = rendered("--values", forms(tmp_path)[form], namespace=namespace)
    code, complaint, said = applied(server, namespace, *objects)
    assert (code, complaint) == (0, ""), complaint
    assert len(said.splitlines()) == len(objects)
    kinds = {each["kind"] for each in objects}
    if form != "spark":
        assert {"StatefulSet", "PodMonitor", "PrometheusRule", "NetworkPolicy", "PodDisruptionBudget"} <= kinds
    assert ("KafkaUser" in kinds) is (form == "strimzi")
    for each in objects:
        code, complaint, _ = applied(server, namespace, {**each, "specification": {}})
        assert code != 0, each["kind"]
        assert 'unknown field "specification"' in complaint


@pytest.mark.parametrize("form", ["bare", "strimzi", "spark"])
def test_every_pod_passes_the_restricted_level(server: Api, namespace: str, form: str, tmp_path: Path) -> None:
    objects = rendered("--values", forms(tmp_path)[form], namespace=namespace)
    accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
    server.kubectl("apply", "--namespace", namespace, "--filename", "-", given=yaml.safe_dump_all(accounts))
    for number, pod in enumerate(pod_templates(objects)):
        volumes = pod["spec"]["volumes"]
        if "data" not in {each["name"] for each in volumes}:
            volumes.append({"name": "data", "emptyDir": {}})  # of the claim
        made = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": f"pod-{number}"}}
        code, complaint, _ = applied(server, namespace, made)
        assert (code, complaint) == (0, ""), complaint
    del made["spec"]["securityContext"]
    assert "violates PodSecurity" in applied(server, namespace, made)[1]


def test_the_driver_may_make_executors_and_nothing_else(server: Api, namespace: str, tmp_path: Path) -> None:
    objects = rendered("--values", forms(tmp_path)["spark"], namespace=namespace)
    rights = [each for each in objects if each["kind"] in {"ServiceAccount", "Role", "RoleBinding"}]
    server.kubectl("apply", "--namespace", namespace, "--filename", "-", given=yaml.safe_dump_all(rights))

    def may(account: str, verb: str, *what: str) -> bool:
        user = f"system:serviceaccount:{namespace}:{account}"
        asked = ("auth", "can-i", verb, *what, "--namespace", namespace, "--as", user)
        return server.kubectl(*asked).stdout.strip() == "yes"

    for verb in ("create", "get", "list", "watch", "delete", "deletecollection"):
        assert may("isrwatch-job", verb, "pods"), verb
        assert not may("isrwatch", verb, "pods"), verb
    for verb, *what in (("get", "secrets"), ("create", "pods", "--subresource=exec"), ("update", "roles")):
        assert not may("isrwatch-job", verb, *what), what


def released(server: Api, namespace: str) -> dict[str, Any]:
    """Return the StatefulSet of a release."""
    found: dict[str, Any] = server.call("GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets/isrwatch")
    return found


@pytest.mark.parametrize("form", ["bare", "strimzi"])
def test_a_release_is_installed_upgraded_and_rolled_back(server: Api, namespace: str, form: str) -> None:
    def done(verb: str, *arguments: str | Path) -> None:
        ran = run_helm(verb, "isrwatch", *arguments, "--namespace", namespace, api=server)
        assert ran.returncode == 0, ran.stderr
        assert "deprecated" not in ran.stderr

    values = ("--values", CHART / f"values-{form}.yaml")
    done("install", packaged(), *values)
    first = released(server, namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_until(lambda: server.objects(pods), what="the controller makes the pod")
    (pod,) = server.objects(pods)
    assert [each["name"] for each in pod["spec"]["containers"]] == ["collector", "job", "exporter"]
    assert server.objects(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")

    done("upgrade", packaged(), *values, "--set", "settings.tables.history=30d,image.tag=0.1.1")
    second = released(server, namespace)
    assert second["metadata"]["generation"] == first["metadata"]["generation"] + 1
    annotations = [each["spec"]["template"]["metadata"]["annotations"] for each in (first, second)]
    assert annotations[0]["isrwatch/configuration"] != annotations[1]["isrwatch/configuration"]

    done("upgrade", packaged(), *values, "--set", "settings.tables.history=30d,image.tag=0.1.1,podMonitor.interval=30s")
    assert released(server, namespace)["metadata"]["generation"] == second["metadata"]["generation"], (
        "no pod is replaced"
    )

    done("rollback", "1")
    assert released(server, namespace)["spec"]["template"]["spec"] == first["spec"]["template"]["spec"]
    history = json.loads(
        run_helm("history", "isrwatch", "--namespace", namespace, "--output", "json", api=server).stdout
    )
    assert [each["status"] for each in history] == ["superseded", "superseded", "superseded", "deployed"]
    done("uninstall")
    kept = server.objects(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    assert [each["metadata"]["name"] for each in kept] == ["data-isrwatch-0"], "the tables stay"
