"""The machines of ``--standalone``: a master with workers, a broker of the bus, a store. Runs share them."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Final

from deploy.sandbox import Sandbox, plan_cluster
from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from tests.plugins.package import packaged, python_without_isrwatch
from tests.plugins.spark_cluster import SparkCluster
from tests.stores.s3 import versitygw

ROOT: Final = Path(__file__).parents[3]
MAIN: Final = ROOT / "deploy" / "spark" / "main.py"
WORKERS: Final = 2
CORES_OF_A_WORKER: Final = 2
EXECUTORS: Final = 2
"""Executors of a driver, of one core each: there are cores for those of an active job and of a standby."""


class StandaloneMachines:
    """Everything that outlives a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._running = folder, ExitStack()
        self._has_started = False

    def start(self) -> None:
        """Start what is not running yet."""
        if self._has_started:
            return
        self._has_started = True
        self.package, python = packaged(self.folder), python_without_isrwatch(self.folder / "python")
        self.store = self._running.enter_context(versitygw(self.folder / "store"))
        self.broker = self._running.enter_context(Sandbox(plan_cluster(brokers=1, controllers=1)))
        self.spark = SparkCluster(self.folder / "spark", python, workers=WORKERS, cores=CORES_OF_A_WORKER, memory="2g")
        self.spark.directory.mkdir()
        self._running.callback(self.spark.close)
        self.spark.start()

    def submit_command(self, *arguments: str) -> list[str]:
        """Return the command that submits the job, as docs/large-form.md does."""
        own = {"spark.executor.cores": "1", "spark.cores.max": str(EXECUTORS)}
        options = [part for key, value in own.items() for part in ("--conf", f"{key}={value}")]
        options += ["--driver-java-options", f"-Dlog4j2.configurationFile={ROOT / 'conf' / 'log4j2.properties'}"]
        jars = ",".join(map(str, jar_paths(SPARK_KAFKA)))
        return [*self.spark.submit_arguments(self.package), *options, "--jars", jars, str(MAIN), *arguments]

    def kill_executor(self, dice: Random) -> None:
        """Kill an executor, of either driver."""
        if running := sorted(self.spark.executors()):
            os.kill(dice.choice(running), signal.SIGKILL)

    def kill_executors(self) -> None:
        """Kill all executors at once."""
        for pid in self.spark.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose_worker(self, dice: Random) -> None:
        """Kill a worker and its executors, and start another one in its place."""
        self.spark.lose_worker(dice.randrange(WORKERS))

    def close(self) -> None:
        self._running.close()
        shutil.rmtree(self.folder, ignore_errors=True)
