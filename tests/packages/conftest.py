"""The packages of a release, built once, and a cluster that machines of these tests watch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.release.packages import build
from deploy.sandbox import Sandbox
from tests.plugins.sandbox import MakeSandbox


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the packages of the commit that is checked out."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="session")
def pip_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give pip a cache for all machines but the empty one: that of ``PIP_CACHE_DIR``, or a new one."""
    given = os.environ.get("PIP_CACHE_DIR")
    return Path(given) if given else tmp_path_factory.mktemp("pip")


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: MakeSandbox) -> Sandbox:
    """Run a cluster of three brokers with a topic that a dead one harms."""
    made = kafka_module_cluster(brokers=3, broker_session_timeout_ms=3000)
    made.admin.create_topic("orders", partitions=6, configs={"min.insync.replicas": "2"})
    return made


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure that the run of the part keeps, whether the test passes or not."""

    def printed(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    return printed
