from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from deploy.sandbox import Sandbox, read_plan
from deploy.sandbox.command import MOVED, TOOLS
from deploy.sandbox.plan import SINCE_4, VERSIONS, plan_cluster
from streaming.commands import app
from streaming.runtime.jars import jar_paths

pytestmark = [pytest.mark.kafka]

JMX = """includeObjectNames: ["kafka.server:type=ReplicaManager,*"]
rules:
- pattern: kafka.server<type=ReplicaManager, name=LeaderCount><>Value
  name: leader_count
"""


def isrwatch(root: Path, *arguments: str, code: int = 0) -> str:
    """Call the command in this process; give all it says."""
    result = CliRunner().invoke(app, ["sandbox", *arguments, "--root", str(root)], prog_name="isrwatch")
    assert result.exit_code == code, result.output
    return result.output


def started(root: Path, *arguments: str, typed: str = "") -> str:
    """Start the command as a user does; give what it prints."""
    command = [sys.executable, "-m", "streaming.commands", "sandbox", arguments[0], "--root", str(root), *arguments[1:]]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_a_person_starts_breaks_repairs_and_ends_a_cluster(tmp_path: Path) -> None:
    root = tmp_path / "sandbox"
    (tmp_path / "jmx.yml").write_text(JMX)
    told = started(root, "up", "--brokers", "1", "--detach", "--jmx-config", str(tmp_path / "jmx.yml"))
    sandbox = Sandbox(read_plan(root), root)
    try:
        assert f"Kafka is ready: {sandbox.bootstrap_servers}" in told
        assert f"isrwatch sandbox kill 1 --root {root}" in told
        with urlopen(sandbox.metrics_url(1)) as answer:  # noqa: S310 - our own agent
            assert re.search(r"^leader_count 0\.0$", answer.read().decode(), re.MULTILINE)
        options = ("--partitions", "2", "--replication-factor", "1", "--config", "segment.ms=60000")
        assert "replication factor 1" in isrwatch(root, "create-topic", "orders", *options)
        shown = sandbox.admin.describe("orders")
        assert {partition: each.isr for partition, each in shown.items()} == {("orders", 0): {1}, ("orders", 1): {1}}
        told = isrwatch(root, "create-topic", "orders", code=2)
        assert "Kafka refuses the topic orders: Topic 'orders' already exists" in told
        started(root, "tool", "kafka-console-producer", "--topic", "orders", typed="one\ntwo\n")
        read = started(
            root, "tool", "kafka-console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "2"
        )
        assert sorted(read.split()) == ["one", "two"]
        assert "there is no tool kafka-nothing" in isrwatch(root, "tool", "kafka-nothing", code=2)
        isrwatch(root, "pause", "1")
        assert re.search(r"\b1 +│ broker +│ \S+ +│ frozen", isrwatch(root, "status"))
        assert f"Metrics of broker 1: {sandbox.metrics_url(1)}\n" in isrwatch(root, "status")
        isrwatch(root, "resume", "1")
        isrwatch(root, "kill", "1")
        assert re.search(r"\b1 +│ broker +│ \S+ +│ not running", isrwatch(root, "status"))
        isrwatch(root, "start", "1")
        isrwatch(root, "stop", "1")
        assert "there are 101, 1" in isrwatch(root, "kill", "2", code=2)
        assert "holds a sandbox of 1 brokers" in isrwatch(root, "up", "--brokers", "2", code=2)
        attached = [sys.executable, "-m", "streaming.commands", "sandbox", "up", "--brokers", "1", "--root", str(root)]
        with subprocess.Popen(attached, stdout=subprocess.PIPE, text=True) as up:
            try:
                ends_when_another_terminal_takes_the_sandbox_down(sandbox, up)
            finally:
                up.kill()
    finally:
        if root.exists():
            isrwatch(root, "down")
    assert sandbox.pid(1) is None
    assert not root.exists()
    assert "there is no sandbox in" in isrwatch(root, "status", code=2)


def ends_when_another_terminal_takes_the_sandbox_down(sandbox: Sandbox, up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    assert any("Ctrl-C stops it" in line for line in up.stdout)
    assert sandbox.pid(1) is not None
    isrwatch(sandbox.root, "down")
    assert up.wait(30) == 0
    assert up.stdout.read() == "the sandbox was taken down\n"


@pytest.mark.parametrize("version", sorted(SINCE_4))
def test_each_tool_is_a_class_of_kafka(version: str) -> None:
    classes = set[str]()
    for jar in jar_paths(VERSIONS[version]):
        with zipfile.ZipFile(jar) as content:
            classes |= {name.removesuffix(".class").replace("/", ".") for name in content.namelist()}
    assert set({**TOOLS, **MOVED.get(version, {})}.values()) - classes == set()


def test_a_property_that_kafka_refuses_is_reported_with_the_end_of_the_log(tmp_path: Path) -> None:
    plan = plan_cluster(brokers=1, node_properties={1: {"num.io.threads": "none"}})
    with pytest.raises(RuntimeError, match=r"(?s)node 1 has ended, see .*num\.io\.threads"), Sandbox(plan, tmp_path):
        pytest.fail("it started")
    assert [Sandbox(plan, tmp_path).pid(node) for node in (101, 1)] == [None, None]
