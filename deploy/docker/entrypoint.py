"""The entry point of the image: ``isrwatch``, and what Spark on Kubernetes starts in an image.

``driver`` and ``executor`` are the two words that Spark gives a container in place of a command (Spark's own
``kubernetes/dockerfiles/spark/entrypoint.sh``); ``spark-submit`` is for a pod that is the driver of its own job. All
three find the Java of the image and its connector to Kafka, and a name for a uid that the platform has chosen.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import Request, urlopen

from streaming.commands import main
from streaming.commands.job import warn
from streaming.errors import MissingTool
from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from streaming.runtime.java import find_java, java_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

OF_SPARK: Final = frozenset({"driver", "executor", "spark-submit"})
LAUNCHER: Final = "deploy/spark/main.py"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
OF_SIGNAL: Final = 128
"""Number that a shell adds to that of the signal which has ended a process."""
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
    """Return the program that the words of a container stand for, by its variables and where Spark is installed.

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


def become(words: Sequence[str]) -> int:
    """Run what Spark starts to its end, and return its exit code; an executor takes the place of this process.

    Raises:
        MissingTool: Java, a jar or a variable is missing.
    """
    import pyspark  # noqa: PLC0415 - a collector or exporter needs none of it

    home = Path(pyspark.__file__).parent
    os.environ.update(java_environment(), SPARK_HOME=str(home))
    command = [str(word) for word in command_of(words, os.environ, home)]
    if words[0] == "executor":
        os.execv(command[0], command)  # noqa: S606 - the signals are for it
    for word in words:
        option, _, driver = word.rpartition("=")
        if option.endswith("spark.kubernetes.driver.pod.name"):
            try:
                delete_left(driver, pods_api)
            except (OSError, ValueError) as error:
                warn(f"executors of an earlier driver may be left: {error}")
    return supervised(command)


def delete_left(driver: str, api: Callable[[str, str], dict[str, Any]]) -> list[str]:
    """Delete the pods of executors that a driver has left behind in its pod, and return their names.

    Spark deletes those of a driver that ends by itself, and Kubernetes those of a pod that is deleted; but a container
    that is started again is in the same pod. ``api`` makes a request, of a method and a path below the pods of the
    namespace.
    """
    pods = api("GET", "?labelSelector=spark-role%3Dexecutor")["items"]
    owners = {pod["metadata"]["name"]: pod["metadata"].get("ownerReferences", ()) for pod in pods}
    left = [name for name, of in owners.items() if any(each["name"] == driver for each in of)]
    for name in left:
        api("DELETE", f"/{name}")
    return left


def pods_api(method: str, path: str) -> dict[str, Any]:
    """Ask the API server for pods of the namespace, as the account of this pod."""
    namespace, token = ((ACCOUNT / name).read_text() for name in ("namespace", "token"))
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    request = Request(  # noqa: S310 - HTTPS
        f"{server}/api/v1/namespaces/{namespace}/pods{path}",
        method=method,
        headers={"Authorization": f"Bearer {token}"},
    )
    trusted = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urlopen(request, timeout=30, context=trusted) as answer:  # noqa: S310 - HTTPS
        return dict(json.load(answer))


def supervised(command: Sequence[str]) -> int:
    """Run spark-submit as the first process of a container, and return its exit code.

    Kubernetes signals the first process alone. Java would end at once, and our driver with it; the driver ends its
    batches first, and then Java ends by itself.
    """
    submit = subprocess.Popen(command)

    def end(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(driver_of(submit.pid) or submit.pid, number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    while True:
        pid, status = os.wait()  # of orphans, too, whose parent the first process becomes
        if pid == submit.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else OF_SIGNAL - code


def driver_of(java: int) -> int | None:
    """Return the Python process that spark-submit has started for our launcher; None while there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == java and LAUNCHER in (process / "cmdline").read_text():
                return int(process.name)
    return None


if __name__ == "__main__":
    if OF_SPARK.intersection(sys.argv[1:2]):
        try:
            sys.exit(become(sys.argv[1:]))
        except MissingTool as missing:
            sys.exit(str(missing))
    main()
