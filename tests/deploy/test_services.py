"""The units of systemd, as far as its own checks see them without starting one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from streaming.commands import COMMANDS
from streaming.errors import ConfigurationError
from streaming.settings import load
from tests.docs.test_commands import parse

SERVICES: Final = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS: Final = sorted(path.name for path in SERVICES.glob("*.service"))
OF_EVERY_SYSTEM: Final = ("sysinit", "basic", "shutdown", "network-online", "multi-user")
MOST_EXPOSED: Final = 1.4
"""systemd's own word for less than 2 is "OK"; a service without any of this is at 9.6."""


class Unit(dict[str, list[str]]):
    """The keys of a unit, each with its values: one may be given several times."""

    def __init__(self, name: str) -> None:
        super().__init__()
        for line in (SERVICES / name).read_text().splitlines():
            if re.match(r"[A-Z]\w*=", line):
                key, _, value = line.partition("=")
                self.setdefault(key, []).append(value)


def analyzed(*arguments: str) -> str:
    """Run systemd-analyze; give what it prints. It must not fail."""
    run = subprocess.run(["systemd-analyze", *arguments, "--no-pager"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_systemd_accepts_every_unit_without_a_word(tmp_path: Path) -> None:
    units, program = tmp_path / "etc/systemd/system", tmp_path / "usr/bin/isrwatch"
    for folder in (units, program.parent):
        folder.mkdir(parents=True)
    program.touch(0o755)
    for name in OF_EVERY_SYSTEM:
        (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    for name in UNITS:
        (units / name).write_text((SERVICES / name).read_text())
    assert UNITS
    assert analyzed("verify", f"--root={tmp_path}", "--man=no", *(str(units / name) for name in UNITS)) == ""


@pytest.mark.parametrize("name", UNITS)
def test_what_a_service_may_do_is_little(name: str) -> None:
    (score,) = re.findall(
        r"exposure level for \S+: ([\d.]+)", analyzed("security", "--offline=true", str(SERVICES / name))
    )
    print(f"{name}: exposure {score}")
    assert float(score) <= MOST_EXPOSED


@pytest.mark.parametrize("name", UNITS)
def test_a_service_runs_a_command_that_there_is_with_the_configuration_of_the_machine(name: str) -> None:
    (command,) = Unit(name)["ExecStart"]
    parse(command)
    assert command.split()[:2] == ["isrwatch", "run" if name == "isrwatch.service" else name[9:-8]]
    assert command.split()[2:] == ["--config", "/etc/isrwatch/isrwatch.toml"]
    assert {each[9:-8] for each in UNITS if "-" in each} == {"collect", "job", "export"} <= set(COMMANDS)


@pytest.mark.parametrize("name", UNITS)
def test_a_service_is_started_again_for_ever_but_not_with_a_wrong_configuration(name: str) -> None:
    unit = Unit(name)
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert unit["RestartPreventExitStatus"] == [str(ConfigurationError.exit_code)]
    assert unit["KillSignal"] == ["SIGTERM"]
    assert unit["KillMode"] == ["mixed"], "Spark's Java would end before the job has stopped its queries"


def test_one_service_for_all_is_not_started_next_to_one_for_each() -> None:
    alone = {name for name in UNITS if name != "isrwatch.service"}
    assert set(Unit("isrwatch.service")["Conflicts"][0].split()) == alone
    assert set(Unit("isrwatch.service")["After"][1].split()) == alone, "else its address is in use: exit code 2"
    assert {each for name in alone for each in Unit(name)["Conflicts"]} == {"isrwatch.service"}


@pytest.mark.parametrize("name", UNITS)
def test_nothing_is_forbidden_that_java_or_the_job_needs(name: str) -> None:
    unit = Unit(name)
    has_java = name in {"isrwatch.service", "isrwatch-job.service"}
    assert ("MemoryDenyWriteExecute" in unit) != has_java
    assert "ProcSubset" not in unit, "without /proc/sys/kernel/random/boot_id no power cut is recognised"


def test_the_places_of_the_configuration_are_folders_that_the_services_have() -> None:
    settings = load(SERVICES / "isrwatch.toml")
    places = {settings.bus.directory, settings.tables.directory, settings.job.checkpoint}
    assert {str(Path(place).parent) for place in places} == {"/var/lib/isrwatch"}
    for name in UNITS:
        unit = Unit(name)
        assert unit["WorkingDirectory"] == ["/var/lib/isrwatch"]
        assert unit["Environment"] == ["ISRWATCH_CACHE=/var/cache/isrwatch"]
        assert unit["CacheDirectory"] == ["isrwatch"]
        assert unit.get("StateDirectory", ["isrwatch"]) == ["isrwatch"]


def test_the_user_and_the_folders_are_those_of_the_services() -> None:
    users = [
        line.split() for line in (SERVICES / "isrwatch.sysusers").read_text().splitlines() if not line.startswith("#")
    ]
    folders = [
        line.split() for line in (SERVICES / "isrwatch.tmpfiles").read_text().splitlines() if not line.startswith("#")
    ]
    assert [user[:2] for user in users] == [["u", "isrwatch"]]
    assert [folder[1] for folder in folders] == ["/etc/isrwatch", "/var/lib/isrwatch", "/var/cache/isrwatch"]
    assert {tuple(folder[3:5]) for folder in folders[1:]} == {("isrwatch", "isrwatch")}
    assert folders[0][2:5] == ["0750", "root", "isrwatch"], "its secrets are not for all, and not to be changed by it"


def test_the_check_before_the_start_has_the_variables_of_the_services() -> None:
    page = (SERVICES.parents[1] / "docs" / "services.md").read_text()
    (check,) = re.findall(r"^.* isrwatch doctor --config .*$", page, re.MULTILINE)
    (file,) = {each for name in UNITS for each in Unit(name)["EnvironmentFile"]}
    assert f"EnvironmentFile={file}" in check
