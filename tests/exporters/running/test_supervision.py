"""Processes that are kept running: what ends is started again, what refuses its configuration ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from exporters.running import liveness, supervision
from exporters.running.command import watched
from exporters.running.supervision import ConfigurationRefused, PartEnded, Supervisor
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
    with Supervisor(
        {"collect": [*SIMULATED, str(tmp_path)]}, lambda _, line: printed.append(line), said.append
    ) as running:
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


def test_a_part_that_refuses_its_configuration_ends_all_and_has_said_why(tmp_path: Path) -> None:
    printed = list[str]()
    commands = {"collect": [*SIMULATED, str(tmp_path)], "job": ["--query", "nonsense"]}
    with Supervisor(commands, lambda _, line: printed.append(line), lambda _: None) as running:
        pids = [part.pid for part in running.parts]
        with pytest.raises(ConfigurationRefused, match="isrwatch job refuses"):
            checked_until_refused(running)
    assert any("no query is named 'nonsense'" in line for line in printed)
    assert not any(alive(pid) for pid in pids if pid is not None)


ATTACHED = "from exporters.running.attached import end_with_parent\nend_with_parent(0.3)\n"
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the arguments of a command be a script that is run in its place."""
    monkeypatch.setattr(supervision, "command_line", lambda _, arguments: [sys.executable, "-c", *arguments])


def supervised(script: str, printed: list[str], said: list[str], **options: object) -> Supervisor:
    return Supervisor({"job": [script]}, lambda _, line: printed.append(line), said.append, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("stand_ins")
def test_the_pause_grows_with_each_failure_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.01)
    said = list[str]()
    with supervised("raise SystemExit(1)", [], said) as running:

        def has_failed_thrice() -> bool:
            running.check()
            return len(said) == 3

        wait_for(has_failed_thrice)
    assert [line.partition("again in ")[2].partition(" s")[0] for line in said] == ["0.01", "0.02", "0.04"]


@pytest.mark.usefixtures("stand_ins")
def test_what_is_not_started_again_is_named_with_the_end_of_what_it_printed() -> None:
    script = "for n in range(100): print('line', n); print('\\tat org.apache.Frame')\nraise SystemExit(3)"
    with supervised(script, [], [], restarts=False) as running, pytest.raises(PartEnded) as ended:
        wait_for(running.check)
    assert str(ended.value) == "isrwatch job ended with exit code 3; below is what it printed last"
    assert ended.value.log.splitlines() == [f"line {number}" for number in range(80, 100)]


@pytest.mark.usefixtures("stand_ins")
def test_what_refuses_to_stop_is_killed_with_all_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "GRACE_SECONDS", 0.3)
    child = "import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', 'input()']).pid, flush=True)\n"
    printed = list[str]()
    with supervised(f"{IGNORES}{child}{SLEEPS}", printed, []):
        wait_for(lambda: "ready" in printed)
    wait_for(lambda: not alive(int(printed[0])))


@pytest.mark.parametrize("ignores", ["", IGNORES])
def test_a_killed_supervisor_leaves_no_process_not_even_one_that_ignores_signals(ignores: str) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    child = f"{ignores}{ATTACHED}{SLEEPS}"
    with subprocess.Popen([sys.executable, "-c", script, child], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        parent.wait()
        wait_for(lambda: not alive(pid))


class HealthPage(BaseHTTPRequestHandler):
    """Answers as ``statuses`` has it, the last one again and again; 0 answers nothing, 1 no HTTP."""

    statuses: list[int]
    released: Event

    def do_GET(self) -> None:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 0:
            self.released.wait(60)
            return
        if status == 1:
            self.wfile.write(b"cut off\n")
            return
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"the query samples hangs\nand more\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def health_page(*statuses: int) -> Iterator[str]:
    handler = type("Page", (HealthPage,), {"statuses": [*statuses], "released": Event()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/-/alive"
        handler.released.set()  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "SECONDS_BETWEEN_PROBES", 0.05)
    monkeypatch.setattr(liveness, "LONGEST_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.05)


@pytest.mark.usefixtures("stand_ins", "hurried")
@pytest.mark.parametrize(
    ("statuses", "why"),
    [
        ((200, 503, 503, 200, 1, 503, 503, 503, 200), "the query samples hangs"),
        ((200, 0, 0, 200, 0, 0, 0, 0, 0, 0, 200), "it has not answered 6 times at http"),
    ],
)
def test_what_hangs_is_ended_and_runs_again_and_that_is_one_sentence(statuses: tuple[int, ...], why: str) -> None:
    printed, said = list[str](), list[str]()
    with health_page(*statuses) as url, supervised(SLEEPS, printed, said, alive={"job": url}) as running:

        def runs_again() -> bool:
            running.check()
            return printed == ["ready", "ready"]

        wait_for(runs_again)
        time.sleep(0.3)
        running.check()
        assert running.parts[0].restarts == 1
    (sentence,) = said
    assert sentence.startswith(f"isrwatch job hangs ({why}")
    assert sentence.endswith(" and was ended; it starts again in 0.05 s, and nothing is lost")


@pytest.mark.usefixtures("stand_ins", "hurried")
@pytest.mark.parametrize("statuses", [(401,), (500,), (200, 503, 503, 200), (0,)])
def test_other_answers_and_none_before_the_first_end_nothing(statuses: tuple[int, ...]) -> None:
    said = list[str]()
    with health_page(*statuses) as url, supervised(SLEEPS, [], said, alive={"job": url}) as running:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            running.check()
            time.sleep(0.02)
    assert said == []


@pytest.mark.usefixtures("stand_ins")
def test_parts_are_watched_while_the_cluster_is_checked() -> None:
    with supervised("raise SystemExit(2)", [], []) as running, pytest.raises(ConfigurationRefused):
        watched(Event().wait, running)
