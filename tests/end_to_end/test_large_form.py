"""``docs/large-form.md`` is followed to the letter, in one shell: from nothing to rows that are served from S3.

Only what the page marks as to be replaced is replaced. What is cloned is the newest commit, whose page is read, too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.sandbox.waiting import wait_until
from tests.plugins.local_http import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.store, pytest.mark.long]
ROOT = Path(__file__).parents[2]
MOST_COMMANDS = 15
PATIENCE = 300.0
ENDED = "--- the exit code is"
READY = re.compile(r"Kafka is ready: (\S+)")
SANDBOXES = ("watched", "carrier")


class Shell:
    """A bash that gets one command after the other, as a user types them; its children are of its process group."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkout = folder, folder / "isrwatch"
        self._log, self._commands = folder / "shell.log", 0
        (folder / "scratch").mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "VIRTUAL", "PYT"))}
        scratch = {"TMPDIR": str(folder / "scratch"), "SPARK_LOCAL_DIRS": str(folder / "scratch")}
        with self._log.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "--norc"], cwd=folder, env=kept | scratch, stdin=subprocess.PIPE, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, text=True,
            )  # fmt: skip

    def run(self, command: str, *, may_fail: bool = False) -> str:
        """Run a command until it ends, or runs in the background; return what it printed."""
        assert self._bash.stdin is not None
        begin = self._log.stat().st_size
        self._bash.stdin.write(f"{{ {command}\n}} < /dev/null; echo '{ENDED}' $?\n")
        self._bash.stdin.flush()
        wait_until(lambda: ENDED in self._printed(begin), command, seconds=900.0)  # it installs Spark
        printed, _, code = self._printed(begin).rpartition(ENDED)
        assert may_fail or code.strip() == "0", f"{command}\n{printed[-3000:]}\n{self.logs()}"
        return printed

    def _printed(self, begin: int) -> str:
        with self._log.open("rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def logs(self) -> str:
        """Return the ends of the logs that the commands write."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in self.checkout.glob("*.log"))

    def eventually(self, command: str, wanted: str) -> str:
        """Repeat a command until it prints what a regular expression wants, and return that."""
        found = list[re.Match[str]]()

        def is_printed() -> bool:
            printed = self.run(command, may_fail=True)
            found.extend(re.finditer(wanted, printed))
            return bool(found)

        try:
            wait_until(is_printed, f"{command} prints {wanted}", seconds=PATIENCE, every=1.0)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self._printed(0)[-2000:]}\n{self.logs()}") from late
        return found[0][0]

    def processes(self, name: str) -> list[int]:
        """Name the processes of the group whose command line has a word."""
        command = ["pgrep", "--full", "--pgroup", str(self._bash.pid), name]
        return [int(pid) for pid in subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()]

    def close(self) -> None:
        """End everything, the brokers by their own command."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for root in SANDBOXES:
            if (folder := self.checkout / ".isrwatch" / root).exists():
                isrwatch = self.checkout / ".venv" / "bin" / "isrwatch"
                subprocess.run([isrwatch, "sandbox", "down", "--root", folder], check=True, capture_output=True)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.close()


def section(page: str, title: str) -> str:
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return str(text)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """Give the fenced blocks of a text: their language, and what is in them."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_in(block: str) -> list[str]:
    return [line for line in re.sub(r" *\\\n *", " ", block).splitlines() if line]


def replaced(text: str, words: dict[str, str]) -> str:
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], text) if words else text


def to_be_replaced(page: str) -> set[str]:
    """Name what the page says is to be replaced: the first column of the table in which it says so."""
    rows = re.findall(r"^\| (`[^|]+`) \|", section(page, "What it takes"), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


@pytest.mark.timeout(1800)  # it installs 430 MB into an environment of its own, builds the store and starts 20 programs
def test_the_page_leads_from_nothing_to_rows_of_a_real_change_in_s3(shell: Shell) -> None:
    page = subprocess.run(
        ["git", "show", "HEAD:docs/large-form.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    words = {"REPOSITORY": str(ROOT), "SECRET": "a-word", **{f"{port}": str(free_port()) for port in (7070, 7077)}}
    words |= {f"{port}": str(free_port()) for port in (9308, 9309, 9310)}
    assert to_be_replaced(page) == {*words, "WATCHED", "BUS"}
    steps = blocks_of(section(page, "From nothing to running"))
    assert sum(len(commands_in(block)) for language, block in steps if not language) <= MOST_COMMANDS

    printed = ""
    for language, block in steps:
        if language == "toml":
            watched, carrier = READY.findall(printed)
            content = replaced(block, words | {"WATCHED": watched, "BUS": carrier})
            (shell.checkout / "isrwatch.toml").write_text(content)
            continue
        for command in commands_in(replaced(block, words)):
            printed += shell.run(command)
    assert "healthy: cluster prod" in printed

    ((_, block),) = blocks_of(section(page, "See that it works"))
    create, kill, events, metric, health = commands_in(replaced(block, words))
    shell.run(create)
    shell.run(kill)
    shell.eventually(events, r"prod +(orders-\d|\d+ partitions) .*broker 3 left .*fenced \(proven\)")
    shell.eventually(metric, r'under_replicated_partitions\{cluster="prod"\} [1-9]')
    assert "every query runs" in shell.run(health)

    for worker in shell.processes("deploy.worker.Worker"):
        os.kill(worker, signal.SIGKILL)
    shell.eventually(health, "Spark has no executor for this job")
    (workers,) = (each for _, block in steps for each in commands_in(block) if "worker.Worker" in each)
    shell.run(replaced(workers, words))
    shell.eventually(health, "every query runs")
    shell.run(kill.replace("kill", "start"))
    shell.eventually(metric, r'under_replicated_partitions\{cluster="prod"\} 0')
    restarts = f"curl --silent http://127.0.0.1:{words['9309']}/metrics | grep '^isrwatch_job_query_restarts_total'"
    assert re.findall(r'query="(\w+)"} (\S+)', shell.run(restarts)) == [("replication", "0.0"), ("samples", "0.0")]
