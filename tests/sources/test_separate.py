"""A collector in another process publishes there; its lines, metrics and counts come back; it ends with this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.exposition import generate_latest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError
from streaming.sources import source
from streaming.sources.collector.collector import Collector
from streaming.sources.collector.separate import SeparateCollector
from streaming.sources.protocol.addresses import Address, Peers
from tests.sources.test_collector import Scripted, heartbeat, running
from tests.sources.test_collectors import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming.sources.source import Source

    Start = Callable[..., tuple[Collector, Peers, list[str]]]

NAME = "samples:a"
NODE = Address("127.0.0.1", 9092)


class Counting(Scripted):
    """A source whose connections count."""

    def __init__(self, pid_file: Path) -> None:
        super().__init__(NAME, [heartbeat(NAME, 1)], [heartbeat(NAME, 2)])
        self.peers = Peers()
        self.peers.at(NODE).count(requests=3)
        pid_file.write_text(str(os.getpid()))


def open_counting(pid_file: Path, report: Callable[[str], None]) -> Sequence[Source]:
    report("opened")
    return [Counting(pid_file)]


def open_after_a_failure(marker: Path, report: Callable[[str], None]) -> Sequence[Source]:
    if not marker.exists():
        marker.touch()
        raise ConfigurationError("ssl.ca.location is missing")
    return open_counting(marker.with_name("pid"), report)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PAUSES", (0.01,))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(open_sources: Callable[..., Sequence[Source]]) -> tuple[Collector, Peers, list[str]]:
            peers, lines = Peers(), list[str]()
            publisher = partial(DirectoryPublisher, tmp_path / "bus", segment_bytes=1 << 20)
            apart = SeparateCollector(open_sources, publisher, cluster="c", name=NAME, peers=peers, report=lines.append)
            main = Scripted("admin:a", [heartbeat("admin:a", 1)])
            collector = Collector([main], publisher, cluster="c", report=lines.append, beside=[apart])
            stack.enter_context(running(collector))
            return collector, peers, lines

        yield started


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_publishes_and_reports_in_a_process_of_its_own(start: Start, tmp_path: Path) -> None:
    collector, peers, lines = start(partial(open_counting, tmp_path / "pid"))
    assert collector.names == ["admin:a", NAME]
    until(
        lambda: f'observations_total{{cluster="c",source="{NAME}"}} 2.0' in generate_latest(collector.registry).decode()
    )
    page = generate_latest(collector.registry).decode()
    assert page.count("# TYPE isrwatch_collector_source_up gauge") == 1
    assert f'source_up{{cluster="c",source="{NAME}"}} 1.0' in page
    assert 'source_up{cluster="c",source="admin:a"} 1.0' in page
    assert page == generate_latest(collector.registry).decode()  # nothing is added up at a scrape
    assert peers.at(NODE).requests == 3
    assert lines == ["opened"]
    pid = int((tmp_path / "pid").read_text())
    assert pid != os.getpid()
    collector.stop()
    collector.wait()
    assert not is_alive(pid)
    reader = DirectoryReader(tmp_path / "bus")
    assert sorted(reader.logs(Channel.REPLICATION)) == ["admin:a", NAME]


def test_what_ends_it_is_said_and_it_is_started_again(start: Start, tmp_path: Path) -> None:
    collector, peers, lines = start(partial(open_after_a_failure, tmp_path / "marker"))
    until(lambda: "opened" in lines)
    assert lines == [f"{NAME}: ssl.ca.location is missing; starting it again in 0.01 s", "opened"]
    until(lambda: peers.at(NODE).requests)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    until(lambda: lines[2:])
    assert lines[2] == f"{NAME}: its process ended with code -9; starting it again in 0.01 s"
    until(lambda: peers.at(NODE).requests == 6)
    assert collector.is_running


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """However that ended."""
    program = f"""
import time
from functools import partial
from pathlib import Path
from streaming.bus.directory import DirectoryPublisher
from streaming.sources.protocol.addresses import Peers
from streaming.sources.collector.separate import SeparateCollector
from tests.sources.test_separate import NAME, open_counting

if __name__ == "__main__":
    folder = Path({str(tmp_path)!r})
    SeparateCollector(
        partial(open_counting, folder / "pid"), partial(DirectoryPublisher, folder / "bus", segment_bytes=1 << 20),
        cluster="c", name=NAME, peers=Peers(), report=print,
    ).start()
    time.sleep(600)
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    with subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as parent:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        child = int((tmp_path / "pid").read_text())
        assert is_alive(child)
        parent.kill()
    until(lambda: not is_alive(child))
