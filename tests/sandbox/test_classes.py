from __future__ import annotations

from pathlib import Path

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.runtime.jars import JMX_AGENT, SANDBOX, jar_paths, jars_folder

JMX = Path(__file__).parents[2] / "conf" / "jmx-exporter.yml"


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache that has the jars and no archive of classes."""
    for group in (SANDBOX, JMX_AGENT):
        jar_paths(group)
    (tmp_path / "jars").symlink_to(jars_folder())
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.kafka
def test_the_first_sandbox_of_a_machine_may_have_the_metrics_agent(empty_cache: Path) -> None:
    """A JVM with an agent ends at once when it is to write an archive of classes."""
    with Sandbox(plan_cluster(brokers=1, jmx_config=JMX)) as sandbox:
        assert sandbox.state(1) == "running"
    assert list(empty_cache.glob("*.jsa")) == []


@pytest.mark.kafka
def test_the_first_sandbox_leaves_its_classes_to_the_next(empty_cache: Path) -> None:
    with Sandbox(plan_cluster(brokers=1)):
        assert list(empty_cache.glob("*.jsa")) == []
    (archive,) = empty_cache.glob("*.jsa")
    with Sandbox(plan_cluster(brokers=1)) as second:
        for node in (101, 1):
            assert str(archive) in Path(f"/proc/{second.pid(node)}/maps").read_text()
