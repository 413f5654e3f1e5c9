"""The programs of Kubernetes, built by Go from the modules that ``go/go.sum`` locks.

kube-apiserver takes ten minutes of a processor, the others four; they are built once, into the cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.stores.programs import built

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE: Final = Path(__file__).parent / "go"
PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}


def program(name: str) -> Path:
    """Return a program of Kubernetes, or etcd; built by Go if this machine has none yet.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """
    return built(name, PACKAGES[name], RECIPE)
