"""The entry point of the image: ``isrwatch``, and what Spark on Kubernetes starts in an image.

``driver`` and ``executor`` are the two words that Spark gives a container in place of a command (Spark's own
``kubernetes/dockerfiles/spark/entrypoint.sh``); ``spark-submit`` is for a pod that is the driver of its own job. All
three find the Java of the image and its connector to Kafka, and a name for a uid that the platform has chosen.
"""

from __future__ import annotations

import os
import sys
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.commands import app
from streaming.errors import MissingTool
from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from streaming.runtime.java import find_java, java_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OF_SPARK: Final = frozenset({"driver", "executor", "spark-submit"})
EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OF_EXECUTOR: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of Spark's executor, and the variable that Spark has put each of them in."""


def command_of(words: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str | Path]:
    """Return the program that the words of a container stand for.

    Args:
        words: what the container is started with; the first is one of ``OF_SPARK``.
        environment: its variables.
        home: where Spark is installed.

    Raises:
        MissingTool: it is an executor without a variable that Spark gives one.
    """
    if words[0] == "executor":
        return _executor(environment, home)
    submit: list[str | Path] = [home / "bin" / "spark-submit", "--jars", ",".join(map(str, jar_paths(SPARK_KAFKA)))]
    if words[0] == "driver":
        address = environment.get("SPARK_DRIVER_BIND_ADDRESS", "")
        submit += ["--conf", f"spark.driver.bindAddress={address}", "--deploy-mode", "client"]
    return [*submit, *words[1:]]


def _executor(environment: Mapping[str, str], home: Path) -> list[str | Path]:
    if missing := sorted({"SPARK_EXECUTOR_MEMORY", *OF_EXECUTOR.values()} - environment.keys()):
        raise MissingTool(f"an executor is started by Spark, which sets {', '.join(missing)}")
    numbered = takewhile(environment.__contains__, (f"SPARK_JAVA_OPT_{number}" for number in count()))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    options = [part for option, name in OF_EXECUTOR.items() for part in (option, environment[name])]
    folders = [environment.get("SPARK_CONF_DIR") or str(home / "conf"), str(home / "jars" / "*")]
    java = [find_java().executable, *(environment[name] for name in numbered), f"-Xms{memory}", f"-Xmx{memory}"]
    return [*java, "-cp", os.pathsep.join(folders), EXECUTOR, *options]


def become(words: Sequence[str]) -> None:
    """Become what Spark starts: it is the first process of the container, which gets the signals.

    Raises:
        MissingTool: Java, a jar or a variable is missing.
    """
    import pyspark  # noqa: PLC0415 - a collector or exporter needs none of it

    home = Path(pyspark.__file__).parent
    os.environ.update(java_environment(), SPARK_HOME=str(home))
    command = command_of(words, os.environ, home)
    os.execv(command[0], [str(part) for part in command])  # noqa: S606 - the signals are for it


if __name__ == "__main__":
    if OF_SPARK.intersection(sys.argv[1:2]):
        try:
            become(sys.argv[1:])
        except MissingTool as missing:
            sys.exit(str(missing))
    app(prog_name="isrwatch")
