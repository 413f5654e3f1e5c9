"""How the job ends under YARN: exit codes of ``spark-submit``, and what the ResourceManager calls it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.pipeline import Program
from tests.yarn.cluster import YarnCluster, is_of
from tests.yarn.feed import Feed
from tests.yarn.submit import HOME, ROOT, environment, submit_command

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.yarn, pytest.mark.long, pytest.mark.timeout(3000)]
PATIENCE = 600.0
ENDED = {"FINISHED", "FAILED", "KILLED"}
ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
LOSS_FAILS = {"spark.yarn.am.clientModeTreatDisconnectAsFailed": "true"}


class Submitter:
    """Submits the job, from the folder of its configuration in client mode, from another one in cluster mode."""

    def __init__(self, cluster: YarnCluster, pipeline: KafkaPipeline, package: Path, python: Path) -> None:
        self.cluster, self._pipeline, self._package, self._python = cluster, pipeline, package, python

    def submit(self, mode: str, *options: str, **more: str) -> Program:
        files = [self._pipeline.config, self._pipeline.directory / "bus-servers"]
        command = submit_command(mode, self._package, self._python, files, more)
        command[1:1] = options
        cwd = self._pipeline.directory if mode == "client" else Path("/")
        return self._pipeline.run(mode, command, cwd=cwd, **environment(self.cluster))

    def ended(self, job: Program) -> tuple[int, str]:
        """Return the exit code, and the final status of the newest application."""
        code = job.wait(PATIENCE)
        done = self._pipeline.eventually(lambda: self.newest()["state"] in ENDED, "the end", None, PATIENCE)
        assert done
        return code, self.newest()["finalStatus"]

    def kill(self) -> None:
        """Kill the newest application by YARN's own command."""
        spark_class, client = HOME / "bin" / "spark-class", "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
        command = [str(spark_class), client, "application", "-kill", self.newest()["id"]]
        assert self._pipeline.run("kill", command, **environment(self.cluster)).wait(PATIENCE) == 0

    def newest(self) -> dict[str, Any]:
        return self.cluster.applications()[0]


@pytest.fixture
def submitter(cluster: YarnCluster, pipeline: KafkaPipeline, package: Path, bare_python: Path) -> Submitter:
    return Submitter(cluster, pipeline, package, bare_python)


def test_client_mode_ends_with_the_exit_code_of_the_job(submitter: Submitter, pipeline: KafkaPipeline) -> None:
    pipeline.config.write_text(pipeline.config.read_text().replace("[job]\n", '[job]\nqueries = ["nothing"]\n'))
    job = submitter.submit("client")
    assert job.wait(PATIENCE) == 2, job.text()
    assert submitter.cluster.applications() == []
    pipeline.config.write_text(pipeline.config.read_text().replace('queries = ["nothing"]\n', ""))

    feed = Feed(pipeline, pieces=1)
    job = submitter.submit("client")
    applied(feed, pipeline, job)
    os.kill(driver_of(job), signal.SIGTERM)
    assert submitter.ended(job) == (0, "SUCCEEDED"), job.text()


def test_client_mode_has_failed_where_the_job_has_or_its_driver_is_lost(
    submitter: Submitter, pipeline: KafkaPipeline
) -> None:
    feed = Feed(pipeline, pieces=2)
    job = submitter.submit("client", **ONE_ATTEMPT)
    applied(feed, pipeline, job)
    here = [sys.executable, "-m", "streaming.commands", "job", "--config", str(pipeline.config)]
    other = pipeline.run("job", here, cwd=pipeline.directory, PYTHONPATH=str(ROOT))
    pipeline.eventually(lambda: "running" in other.text(), "another job takes the tables", other, PATIENCE)
    assert submitter.ended(job) == (1, "FAILED"), job.text()
    assert other.stop() == 0, other.text()

    job = submitter.submit("client", **ONE_ATTEMPT, **LOSS_FAILS)
    applied(feed, pipeline, job)
    job.kill()
    assert submitter.ended(job) == (-signal.SIGKILL, "FAILED")


def test_cluster_mode_ends_as_yarn_says_and_runs_on_packages_from_an_archive(
    submitter: Submitter, pipeline: KafkaPipeline
) -> None:
    right = pipeline.config.read_text()
    pipeline.config.write_text(right.replace("[job]\n", '[job]\nqueries = ["nothing"]\n'))
    job = submitter.submit("cluster", **ONE_ATTEMPT)
    assert submitter.ended(job) == (1, "FAILED"), job.text()
    assert "exited with status 2" in submitter.newest()["diagnostics"]
    assert "no query is named 'nothing'" in submitter.cluster.logs()

    pipeline.config.write_text(right)
    feed = Feed(pipeline, pieces=4)
    archive, configuration = packed(pipeline.directory)
    job = submitter.submit("cluster", *archive, **configuration, **ONE_ATTEMPT)
    applied(feed, pipeline, job)
    submitter.kill()
    assert submitter.ended(job) == (1, "KILLED"), job.text()


def packed(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Pack the packages as the page says; return the options and the configuration with which it submits."""
    page = (ROOT / "docs" / "yarn.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^tar .*$", page, re.MULTILINE)
    subprocess.run(["bash", "-c", command.replace("-C .venv", f"-C {sys.prefix}")], check=True, cwd=folder)
    ((archive, key, value),) = re.findall(r"`--archives (\S+) --conf (\S+)=(\S+)`", page)
    return ["--archives", f"{folder}/{archive}"], {key: value}


def applied(feed: Feed, pipeline: KafkaPipeline, job: Program) -> None:
    """Publish a piece, and wait until the job has applied it."""
    feed.publish()
    pipeline.eventually(feed.is_applied, "it applies", job, PATIENCE)


def driver_of(job: Program) -> int:
    """Give the Python process of a driver in client mode, which Java has started."""
    (driver,) = (pid for pid in job.children() if is_of(pid, "python", "main.py"))
    return driver
