"""Processes that are kept running: what ends is started again, what refuses its configuration ends all."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from exporters.running import supervision
from exporters.running.supervision import ConfigurationRefused, Supervisor
from tests.plugins import local_http

wait_for = partial(local_http.wait_until, seconds=60.0)
SIMULATED = ["--simulate", "steady", "--listen", "", "--bus"]


@pytest.fixture(autouse=True)
def _keeps_handlers() -> object:
    """Leave the handlers of this process as they were: a supervisor ignores signals while it stops."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def checked_until_refused(running: Supervisor) -> None:
    def never() -> bool:
        running.check()
        return False

    wait_for(never)


def test_what_is_killed_runs_again_and_continues_and_nothing_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.05)
    printed, said = list[str](), list[str]()
    with Supervisor({"collect": [*SIMULATED, str(tmp_path)]}, printed.append, said.append) as running:
        (part,) = running.parts
        wait_for(lambda: any("writing to" in line for line in printed))
        first = part.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        def runs_again() -> bool:
            running.check()
            return sum("writing to" in line for line in printed) == 2

        wait_for(runs_again)
        second = part.pid
        assert second is not None
        assert (part.restarts, second != first) == (1, True)
        assert said == ["isrwatch collect was ended by signal 9; it starts again in 0.05 s, and nothing is lost"]
    assert any("stopped; the next start continues here" in line for line in printed)
    assert not alive(second)


def test_the_pause_grows_with_each_failure_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.01)
    said = list[str]()
    with Supervisor({"state": ["--server", "http://127.0.0.1:1"]}, lambda _: None, said.append) as running:

        def has_failed_thrice() -> bool:
            running.check()
            return len(said) == 3

        wait_for(has_failed_thrice)
    assert [line.partition("again in ")[2].partition(" s")[0] for line in said] == ["0.01", "0.02", "0.04"]


def test_a_part_that_refuses_its_configuration_ends_all_and_has_said_why(tmp_path: Path) -> None:
    printed = list[str]()
    commands = {"collect": [*SIMULATED, str(tmp_path)], "job": ["--query", "nonsense"]}
    with Supervisor(commands, printed.append, lambda _: None) as running:
        pids = [part.pid for part in running.parts]
        with pytest.raises(ConfigurationRefused, match="isrwatch job refuses"):
            checked_until_refused(running)
    assert any("no query is named 'nonsense'" in line for line in printed)
    assert not any(alive(pid) for pid in pids if pid is not None)
