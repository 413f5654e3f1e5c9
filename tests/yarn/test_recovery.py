"""Whatever a machine of YARN loses, the job comes back by itself, and the tables are those of the model.

In cluster mode, submitted from a folder where nothing of ours is: the configuration and its secrets travel as files.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.sandbox.waiting import wait_until
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.pipeline import Program
from tests.yarn.cluster import YarnCluster
from tests.yarn.feed import Feed
from tests.yarn.submit import environment, submit_command

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.yarn, pytest.mark.long]
AWAY_SECONDS = 20.0
PATIENCE = 600.0


class Losses:
    """What is lost, one after the other; each gives the moment from which on the job can work again."""

    def __init__(self, cluster: YarnCluster) -> None:
        self._cluster = cluster

    def an_executor(self) -> float:
        os.kill(self._cluster.executors()[0], signal.SIGKILL)
        return time.monotonic()

    def a_machine_of_executors(self) -> float:
        node = next(node for node in self._cluster.nodes if not node.runs(self._cluster.masters()))
        node.lose()
        at = time.monotonic()
        node.server.start()
        return at

    def the_driver(self) -> float:
        os.kill(self._cluster.masters()[0], signal.SIGKILL)
        return time.monotonic()

    def the_node_manager_of_the_driver(self) -> float:
        """Let its containers live on, as on a machine that is cut off: two drivers write for a while."""
        node = next(node for node in self._cluster.nodes if node.runs(self._cluster.masters()))
        before, at = set(self._cluster.drivers()), time.monotonic()
        node.server.kill()
        wait_until(lambda: set(self._cluster.drivers()) - before, "another driver", seconds=PATIENCE)
        return at

    def the_name_node(self) -> float:
        self._cluster.hdfs.name_node.kill()
        time.sleep(AWAY_SECONDS)  # with it away
        self._cluster.hdfs.name_node.start()
        return time.monotonic()


@pytest.mark.timeout(3000)
def test_whatever_is_lost_the_job_comes_back_and_the_tables_are_those_of_the_model(
    cluster: YarnCluster, pipeline: KafkaPipeline, package: Path, bare_python: Path
) -> None:
    losses = Losses(cluster)
    order: list[Callable[[], float]] = [
        losses.an_executor, losses.a_machine_of_executors, losses.the_driver, losses.the_name_node,
        losses.the_node_manager_of_the_driver,
    ]  # fmt: skip
    feed = Feed(pipeline, pieces=1 + len(order))
    files = [pipeline.config, pipeline.directory / "bus-servers"]
    command = submit_command("cluster", package, bare_python, files)
    try:
        feed.publish()
        job = pipeline.run("submit", command, cwd=Path("/"), **environment(cluster))
        pipeline.eventually(feed.is_applied, f"it applies\n{cluster.logs()}", job, PATIENCE)
        for lose in order:
            since = lose()
            feed.publish()
            pipeline.eventually(feed.is_applied, f"it goes on after {lose.__name__}", job, PATIENCE)
            print(f"{lose.__name__}: {time.monotonic() - since:.0f} s")
        pipeline.eventually(pipeline.is_applied, "the samples are applied", job, PATIENCE)
        pipeline.eventually(feed.is_derived, "the derived tables", job, PATIENCE)
        stop(cluster, job)
    except BaseException:
        print(cluster.logs())
        raise
    finally:
        feed.close()
    assert [*feed.differences()] == []


def stop(cluster: YarnCluster, job: Program) -> None:
    """Ask the driver for a clean end; it is one for YARN, too."""
    wait_until(lambda: len(cluster.drivers()) == 1, "the driver that was replaced to end", seconds=PATIENCE)
    os.kill(cluster.drivers()[0], signal.SIGTERM)
    assert job.wait(PATIENCE) == 0, cluster.logs()
    (application,) = cluster.applications()
    assert (application["state"], application["finalStatus"]) == ("FINISHED", "SUCCEEDED"), application
