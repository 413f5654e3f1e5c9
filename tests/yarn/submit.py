"""The command that submits the job to a YARN of tests, and its environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from streaming.runtime.java import java_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.yarn.cluster import YarnCluster

ROOT: Final = Path(__file__).parents[2]
HOME: Final = Path(pyspark.__file__).parent
LIGHT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""What a JVM that lives for minutes need not do better."""
OF_JOB: Final = {
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.executor.instances": "2",
    "spark.driver.memory": "768m",
    "spark.executor.defaultJavaOptions": LIGHT,
    "spark.driver.defaultJavaOptions": LIGHT,
    "spark.yarn.jars": f"local:{HOME}/jars/*",
    "spark.yarn.maxAppAttempts": "8",
}


def submit_command(
    mode: str, package: Path, python: Path, files: Sequence[Path], more: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that submits with the code of a package, some files and nothing else of ours."""
    jars = ",".join(map(str, jar_paths(SPARK_KAFKA)))
    given = {**OF_JOB, "spark.pyspark.python": str(python), **(more or {})}
    options = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
    submit = [str(HOME / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", mode, "--name", "isrwatch"]
    shipped = ["--py-files", str(package), "--jars", jars]
    shipped += ["--files", ",".join(map(str, [*files, ROOT / "conf/log4j2.properties"]))]
    return [*submit, *shipped, *options, str(ROOT / "deploy/spark/main.py"), "--config", files[0].name]


def environment(cluster: YarnCluster) -> dict[str, str]:
    """Return what one who submits has: the address of the cluster, and nothing of this checkout."""
    here = {"HADOOP_CONF_DIR": str(cluster.conf), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**java_environment(), **here, "PYTHONPATH": ""}
