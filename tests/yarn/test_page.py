"""``docs/yarn.md`` is followed to the letter, in one shell: from nothing to rows of a job under YARN, in both modes.

Only what the page marks as to be replaced is replaced. What is cloned is the newest commit, whose page is read, too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import test_large_form
from tests.end_to_end.test_large_form import (
    MOST_COMMANDS,
    READY,
    ROOT,
    Shell,
    blocks_of,
    commands_in,
    replaced,
    section,
    to_be_replaced,
)
from tests.plugins.local_http import free_port
from tests.yarn.cluster import end, processes_below

pytestmark = [pytest.mark.yarn, pytest.mark.long]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setattr(test_large_form, "PATIENCE", 600.0)  # commits to HDFS take seconds
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.close()
        end(processes_below(made.checkout))  # containers are of no group of the shell


def page(name: str) -> str:
    shown = ["git", "show", f"HEAD:docs/{name}"]
    return subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.timeout(3000)  # it installs 430 MB into an environment of its own, and starts 25 programs
def test_the_page_leads_from_nothing_to_a_job_under_yarn_in_both_modes(shell: Shell) -> None:
    text = page("yarn.md")
    words = {"REPOSITORY": str(ROOT), **{f"{port}": str(free_port()) for port in (9308, 9309, 9310)}}
    assert to_be_replaced(text) == {*words, "WATCHED", "BUS", "HDFS"}
    steps = blocks_of(section(text, "From nothing to running"))
    ((_, in_client_mode),) = blocks_of(section(text, "In client mode"))
    commands = [command for language, block in steps if not language for command in commands_in(block)]
    assert len([*commands, *commands_in(in_client_mode)]) <= MOST_COMMANDS

    printed = ""
    for language, block in steps:
        if language == "toml":
            watched, carrier = READY.findall(printed)
            (hdfs,) = re.findall(r"hdfs://127\.0\.0\.1:\d+", printed)
            content = replaced(block, words | {"WATCHED": watched, "BUS": carrier, "HDFS": hdfs})
            (shell.checkout / "isrwatch.toml").write_text(content)
            continue
        for command in commands_in(replaced(block, words)):
            printed += shell.run(command)
    assert "healthy: cluster prod" in printed
    kill, metric = break_it_and_see(shell, words)

    (yarn,) = commands_in(blocks_of(section(text, "When it ends"))[0][1])
    (application,) = re.findall(r"application_\d+_\d+", (shell.checkout / "job.log").read_text())[:1]
    shell.run(yarn.replace("APPLICATION", application))
    shell.eventually("cat job.log", "final status: KILLED")
    (command,) = commands_in(replaced(in_client_mode, words))
    shell.run(command)
    shell.eventually(f"curl --silent http://127.0.0.1:{words['9309']}/-/ready", "job is ready")
    shell.run(kill.replace("kill", "start"))
    shell.eventually(metric, r'under_replicated_partitions\{cluster="prod"\} 0')


def break_it_and_see(shell: Shell, words: dict[str, str]) -> tuple[str, str]:
    """Do what the page of the large form says; return the command that killed a broker, and that of the metric."""
    ((_, block),) = blocks_of(section(page("large-form.md"), "See that it works"))
    create, kill, events, metric, health = commands_in(replaced(block, words))
    shell.run(create)
    shell.run(kill)
    shell.eventually(events, r"prod .*broker 3 left .*fenced \(proven\)")
    shell.eventually(metric, r'under_replicated_partitions\{cluster="prod"\} [1-9]')
    assert "every query runs" in shell.run(health)
    return kill, metric
