"""The chart as helm sees it: packaged as for a release, rendered, installed.

helm has folders of its own, so that nothing of a user's is read or written.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.chart_files import CHART, package
from tests.kubernetes.programs import helm

if TYPE_CHECKING:
    from tests.kubernetes.control_plane import Api

SPARK: Final = """\
mode: spark
secret: {existing: isrwatch}
configuration: |
  [cluster]
  bootstrap_servers = "broker:9092"
  [bus.kafka]
  bootstrap_servers = "bus:9092"
  [tables]
  directory = "s3://isrwatch/tables"
"""
"""Values of the form on Spark, which has no file of its own."""


@cache
def packaged() -> Path:
    """Return the chart as it is released."""
    return package(Path(tempfile.mkdtemp(prefix="isrwatch-chart-")))


def forms(folder: Path) -> dict[str, Path]:
    """Return files of values: those of the chart for three platforms, and one of the form on Spark."""
    spark = folder / "values-spark.yaml"
    spark.write_text(SPARK)
    return {path.stem.removeprefix("values-"): path for path in [*sorted(CHART.glob("values-*.yaml")), spark]}


def run_helm(*arguments: str | Path, api: Api | None = None, version: int = 4) -> subprocess.CompletedProcess[str]:
    """Run helm."""
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        own = {f"HELM_{name}_HOME": f"{home}/{name}" for name in ("CACHE", "CONFIG", "DATA")}
        own |= {"KUBECONFIG": str(api.folder / "kubeconfig") if api else f"{home}/none"}
        return subprocess.run(
            [helm(version), *arguments], capture_output=True, text=True, check=False, timeout=600,
            env={**os.environ, **own},
        )  # fmt: skip


def rendered(*arguments: str | Path, namespace: str = "isrwatch", version: int = 4) -> list[dict[str, Any]]:
    """Return the objects of a release.

    Args:
        arguments: options of ``helm template``, such as files of values.
        namespace: of the release.
        version: of helm.
    """
    ran = run_helm("template", "isrwatch", packaged(), "--namespace", namespace, *arguments, version=version)
    assert ran.returncode == 0, ran.stderr
    return [each for each in yaml.safe_load_all(ran.stdout) if each]
