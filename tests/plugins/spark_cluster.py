"""A real standalone Spark cluster on this machine: a master, workers, and a Python that has no isrwatch.

Fixture ``spark_cluster``: ``spark_cluster.submit_arguments(package)`` is what to put before the launcher.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from streaming.jobs.session import JAVA_OPTIONS, java_options, measured_configuration, spark_archive
from streaming.runtime.class_archive import using
from streaming.runtime.java import java_environment
from tests.plugins.local_http import free_port
from tests.plugins.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugins.pipeline import Program

HOME = Path(pyspark.__file__).parent
CORES = 2
LIGHT = java_options(measured_configuration()[JAVA_OPTIONS], using(spark_archive()))


class SparkCluster:
    """Master and workers, each a process of its own; what is submitted gets one executor of each worker."""

    def __init__(self, directory: Path, python: Path, workers: int = 1, cores: int = CORES, memory: str = "1g") -> None:
        self.directory, self.python = directory, python
        self.cores, self._memory = cores, memory
        self.workers: list[Program] = []
        self._workers, self._started = workers, 0
        self._programs = Pipeline(directory)
        self.url = f"spark://127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Start all of them, and wait until the master knows its workers."""
        port = self.url.rsplit(":", 1)[1]
        self._master = self._daemon("master", "master.Master", "--port", port)
        self._programs.eventually(lambda: "I have been elected leader" in self._master.text(), "it leads", self._master)
        for _ in range(self._workers):
            self._start_worker()
        self._wait_for_workers()

    def _start_worker(self) -> None:
        folder = str(self.directory / f"work-{self._started}")
        work = ("--cores", str(self.cores), "--memory", self._memory, "--work-dir", folder)
        self.workers.append(self._daemon(f"worker-{self._started}", "worker.Worker", *work, self.url))
        self._started += 1

    def _wait_for_workers(self) -> None:
        self._programs.eventually(
            lambda: self._master.text().count("Registering worker") >= self._started, "they register", self._master
        )

    def lose_worker(self, number: int) -> None:
        """Kill a worker and its executors at once, as the loss of its machine does, and start another one."""
        self.workers.pop(number).kill()
        self._start_worker()
        self._wait_for_workers()

    def executors(self) -> list[int]:
        """Give the processes of the executors that run."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_executor = b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes()
                if is_executor and (process / "cwd").readlink().is_relative_to(self.directory):
                    found.append(int(process.name))
        return found

    def _daemon(self, name: str, daemon: str, *arguments: str) -> Program:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}", "--host", "127.0.0.1"]
        return self._programs.run(
            name,
            [*command, "--webui-port", str(free_port()), *arguments],
            **self.environment(),
            SPARK_DAEMON_MEMORY="256m",
            SPARK_DAEMON_JAVA_OPTS=LIGHT,
        )

    def environment(self) -> dict[str, str]:
        """Give what master, worker and drivers start with: this machine only, nothing of this checkout."""
        return {**java_environment(), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": "",
                "PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": str(self.python)}  # fmt: skip

    def submit_arguments(self, package: Path) -> list[str]:
        """Give the command that submits with the code of a package, and nothing else of ours."""
        configuration = {
            "spark.executor.memory": "640m",
            "spark.executor.cores": str(self.cores),
            "spark.cores.max": str(self.cores * self._workers),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            # Four JVMs live for half a minute: what a second compiler costs, it does not save.
            "spark.driver.defaultJavaOptions": LIGHT,
            "spark.executor.defaultJavaOptions": LIGHT,
        }
        options = [part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.url, "--driver-memory", "768m"]
        return [*command, "--py-files", str(package), *options]

    def imported(self, module: str) -> str:
        """Import a module as a machine of the cluster does; give what that says."""
        command = [str(self.python), "-c", f"import {module}"]
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd="/", env={**os.environ, **self.environment()}
        )
        return found.stderr

    def close(self) -> None:
        self._programs.close()


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("spark-cluster"), bare_python)
    try:
        made.start()
        yield made
    finally:
        made.close()
