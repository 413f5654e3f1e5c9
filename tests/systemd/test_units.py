"""The units under a real systemd, installed, backed up, restored and removed by the commands of their page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy.sandbox import Sandbox
from tests.plugins.local_http import free_port, wait_until
from tests.plugins.package import package
from tests.systemd.machine import ROOT, Machine
from tests.systemd.story import STORY

__all__ = ["package"]
pytestmark = [pytest.mark.systemd, pytest.mark.long]
PAGE: Final = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
FILE: Final = "/etc/isrwatch/isrwatch.toml"
STATE: Final = "/var/lib/isrwatch"
PARTS: Final = ("collect", "job", "export")
SECONDS_OF_A_START: Final = 400.0  # Spark starts in ten, beside busy programs in hundreds


def block(section: str, number: int = 0) -> str:
    """Give a block of code of a section of the page."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[number]


class Services:
    """The services of a machine, and the ports that they listen on: its network is that of this machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ports = {part: free_port() for part in PARTS}
        self.configure("127.0.0.1:1")

    def configure(self, servers: str, more: str = "") -> None:
        lines = (ROOT / "deploy/systemd/isrwatch.toml").read_text(encoding="utf-8")
        lines = re.sub(r"bootstrap_servers = .*", f'bootstrap_servers = "{servers}"', lines)
        lines = lines.replace("[tables]\n", '[tables]\nhistory = "9999d"\n')  # the story is of 2023
        lines = lines.replace("[job]\n", f'[job]\nlisten = "127.0.0.1:{self.ports["job"]}"\n')
        lines += f'[collect]\nlisten = "127.0.0.1:{self.ports["collect"]}"\n'
        lines += f'[export]\nlisten = "127.0.0.1:{self.ports["export"]}"\n{more}'
        self.machine.ran("sh", "-c", f"cat > {FILE} <<'end'\n{lines}end")

    def answers(self, part: str, path: str = "/-/healthy") -> bool:
        asked = f"http://127.0.0.1:{self.ports[part]}{path}"
        script = f"import urllib.request as u; print(u.urlopen('{asked}', timeout=2).status)"
        return self.machine.ran("python3", "-c", script, fails=True)[0] == 0

    def start(self, unit: str) -> None:
        self.machine.ran("systemctl", "start", unit)

    def kill(self, unit: str) -> int:
        """Kill the first process of a service as the kernel does without memory; wait until it was started again."""
        before, pid = int(self.machine.shown(unit, "NRestarts")), self.machine.shown(unit, "MainPID")
        self.machine.ran("kill", "-KILL", pid)
        wait_until(lambda: int(self.machine.shown(unit, "NRestarts")) > before, seconds=60)
        wait_until(lambda: self.machine.shown(unit, "ActiveState") == "active", seconds=60)
        return int(self.machine.shown(unit, "NRestarts"))

    def stop(self, unit: str) -> tuple[str, str]:
        """Stop a service; give its result and its exit code."""
        self.machine.ran("systemctl", "stop", unit)
        return self.machine.shown(unit, "Result"), self.machine.shown(unit, "ExecMainStatus")

    def applied(self, tables: str = f"{STATE}/tables") -> float:
        """Return the share of the story that the tables hold; they are those of a fold up to there."""
        held, every = map(int, self.machine.python("tests.systemd.story", "compare", tables).split())
        return held / every


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("machine"), package) as machine:
        yield machine


@pytest.fixture(scope="module")
def services(machine: Machine) -> Services:
    machine.shell(block("Install the units"))
    return Services(machine)


@pytest.fixture
def watching(services: Services, kafka_4_4: Sandbox) -> Iterator[Services]:
    """Name a real cluster in the configuration."""
    services.configure(kafka_4_4.bootstrap_servers)
    yield services
    services.configure("127.0.0.1:1")


def test_the_page_installs_a_user_folders_and_units_that_systemd_accepts(machine: Machine, services: Services) -> None:
    assert services
    assert machine.ran("stat", "-c", "%U %G %a", "/etc/isrwatch", FILE, STATE)[1].splitlines() == [
        "root isrwatch 750", "root isrwatch 640", "isrwatch isrwatch 750",
    ]  # fmt: skip
    for unit in ("isrwatch", *(f"isrwatch-{part}" for part in PARTS)):
        assert machine.ran("systemd-analyze", "verify", "--man=no", f"{unit}.service")[1] == ""
        (score,) = re.findall(r"level for \S+: ([\d.]+)", machine.ran("systemd-analyze", "security", unit)[1])
        print(f"{unit}: exposure {score}")
        assert float(score) < 2


def test_the_check_of_the_page_reads_the_variables_that_only_root_may_read(services: Services) -> None:
    (check,) = [line for line in block("Install the units", 1).splitlines() if " isrwatch doctor " in line]
    services.configure("${BROKERS}")
    services.machine.shell("(umask 077; echo BROKERS=127.0.0.1:1 > /etc/isrwatch/environment)")
    code, found = services.machine.ran("sh", "-ec", check, fails=True)
    services.configure("127.0.0.1:1")
    print(found)
    assert (code, "127.0.0.1:1" in found, "BROKERS" in found) == (1, True, False)


@pytest.mark.parametrize("unit", ["isrwatch", *(f"isrwatch-{part}" for part in PARTS)])
def test_a_wrong_configuration_is_reported_once_and_does_not_loop(services: Services, unit: str) -> None:
    machine = services.machine
    services.configure("127.0.0.1:1", more='[tables_]\ndirectory = "x"\n')
    machine.ran("systemctl", "start", unit, fails=True)
    wait_until(lambda: machine.shown(unit, "ActiveState") == "failed", seconds=60)
    time.sleep(8)  # longer than RestartSec
    services.configure("127.0.0.1:1")
    assert (machine.shown(unit, "ActiveState"), machine.shown(unit, "NRestarts")) == ("failed", "0")
    assert machine.shown(unit, "ExecMainStatus") == "2"
    assert machine.log(unit).count("tables_") == 1
    machine.ran("systemctl", "reset-failed", unit)


@pytest.mark.parametrize("part", ["collect", "export"])
def test_a_service_that_is_killed_is_started_again_and_stops_cleanly(watching: Services, part: str) -> None:
    services, unit = watching, f"isrwatch-{part}"
    services.start(unit)
    wait_until(lambda: services.machine.shown(unit, "ActiveState") == "active", seconds=60)
    alive = "/-/alive" if part == "collect" else "/-/healthy"
    wait_until(lambda: services.answers(part, alive), seconds=60)
    assert services.kill(unit) == 1
    wait_until(lambda: services.answers(part, alive), seconds=60)
    assert services.stop(unit) == ("success", "0"), services.machine.log(unit)


def test_a_job_is_killed_backed_up_while_it_writes_stopped_and_restored(services: Services) -> None:
    machine, taken = services.machine, f"{STATE}/backup-2026-03-01"
    machine.shell(f"rm -rf {STATE}/bus {STATE}/tables")  # of the collector of another test
    machine.shell("echo KAFKA_PASSWORD=secret > /etc/isrwatch/environment")
    services.configure("127.0.0.1:1", '[cluster.client]\n"sasl.password" = "${KAFKA_PASSWORD}"\n')
    services.start("isrwatch-job")
    machine.ran(
        "systemd-run", "--unit=feed", "--property=User=isrwatch", f"--property=WorkingDirectory={ROOT}",
        f"--setenv=PYTHONPATH={ROOT}", "/opt/isrwatch/bin/python", "-m", "tests.systemd.story", "publish",
        f"{STATE}/bus", "0", str(len(STORY)), "0.4",
    )  # fmt: skip
    wait_until(lambda: services.applied() > 0, seconds=SECONDS_OF_A_START)
    assert services.kill("isrwatch-job") == 1
    before = services.applied()
    wait_until(lambda: services.applied() > before, seconds=SECONDS_OF_A_START)
    began = time.monotonic()
    machine.shell(block("Back up and restore").replace("$(date +%F)", "2026-03-01"))
    print(f"backed up in {time.monotonic() - began:.1f} s while the job wrote")
    assert machine.shown("feed", "ActiveState") == "active"
    held = services.applied(taken)
    assert 0 < before <= held < 1
    assert services.kill("isrwatch-job") == 2
    wait_until(lambda: services.applied() == 1, seconds=300)
    assert services.stop("isrwatch-job") == ("success", "0"), machine.log("isrwatch-job")
    assert services.applied() == 1

    machine.shell(block("Back up and restore", 1).replace("start isrwatch", "start isrwatch-job"))
    assert machine.ran("ls", f"{STATE}/tables-damaged")[1]
    wait_until(lambda: services.applied() == 1, seconds=SECONDS_OF_A_START)
    assert services.applied(taken) == held, "the backup is as it was"
    damaged = json.loads(machine.shell(f"isrwatch tables --tables {STATE}/tables -o json") or "{}")
    assert damaged
    assert services.stop("isrwatch-job") == ("success", "0"), machine.log("isrwatch-job")
    machine.shell(f"rm -r {STATE}/bus {STATE}/tables* /etc/isrwatch/environment")
    services.configure("127.0.0.1:1")


def test_one_service_for_all_restarts_what_is_killed_and_leaves_no_process(watching: Services) -> None:
    services, machine = watching, watching.machine
    services.start("isrwatch")
    for part in PARTS:
        path = "/-/healthy" if part == "export" else "/-/alive"
        wait_until(lambda part=part, path=path: services.answers(part, path), seconds=SECONDS_OF_A_START)
    for part in PARTS:
        machine.ran("pkill", "--signal", "KILL", "--full", f"exporters.running.attached {part}")
        path = "/-/healthy" if part == "export" else "/-/alive"
        wait_until(lambda part=part, path=path: services.answers(part, path), seconds=SECONDS_OF_A_START)
    assert machine.shown("isrwatch", "NRestarts") == "0", "isrwatch run starts its parts itself"
    assert services.kill("isrwatch") == 1
    wait_until(lambda: services.answers("job", "/-/alive"), seconds=SECONDS_OF_A_START)
    machine.ran("systemctl", "start", "isrwatch-export")
    assert machine.shown("isrwatch", "ActiveState") in {"inactive", "deactivating"}, "they are not run side by side"
    wait_until(lambda: machine.shown("isrwatch", "ActiveState") == "inactive", seconds=150)
    assert machine.shown("isrwatch", "Result") == "success"
    assert services.stop("isrwatch-export") == ("success", "0")
    services.start("isrwatch")
    wait_until(lambda: services.answers("job", "/-/alive"), seconds=SECONDS_OF_A_START)
    machine.shell(f"isrwatch health --wait 3m --config {FILE}")
    assert services.stop("isrwatch") == ("success", "0"), machine.log("isrwatch")
    machine.shell(f"isrwatch tables --config {FILE}")
    assert machine.ran("pgrep", "--list-full", "--euid", "isrwatch", fails=True)[1] == ""


def test_what_the_page_removes_is_all_there_was(services: Services) -> None:
    """The last test: nothing is left of what the first one has installed."""
    machine = services.machine
    machine.shell(block("How to leave"))
    found = machine.ran("find", "/etc", "/var", "/usr/lib/systemd", "-name", "*isrwatch*")[1].split()
    assert [each for each in found if "journal" not in each] == []
    assert machine.ran("getent", "passwd", "isrwatch", fails=True)[0] == 2
