"""The store of ``make test``: it starts and ends, is exclusive, and what a client sees of faults before it."""

from __future__ import annotations

import http.client
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from deploy.sandbox.waiting import wait_until
from tests.stores.fault_proxy import fault_proxy
from tests.stores.faults import Fault, to
from tests.stores.races import raced
from tests.stores.s3 import moto
from tests.stores.seen_by_clients import FaultsSeen
from tests.stores.serving import listens, serving
from tests.stores.store import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.fault_proxy import FaultProxy
    from tests.stores.store import Store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.store


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with moto(tmp_path_factory.mktemp("stores"), seconds=0.01) as store:
        yield store


class TestFaults(FaultsSeen):
    def test_a_store_that_does_not_know_conditions_lets_both_win(self, proxy: FaultProxy, name: str) -> None:
        proxy.fault(Fault.UNCONDITIONAL, to("PUT"))
        for body in (b"one", b"two"):
            obstore.put(proxy.store.opened(), name, body, mode="create")
        assert bytes(obstore.get(proxy.store.opened(), name).bytes()) == b"two"


def test_of_eight_processes_one_creates_each_name(direct: Store) -> None:
    race = raced(direct)
    assert (len(race.winners), race.numbers, race.lost) == (20, {1}, 0)


def test_without_conditions_several_create_a_name_and_what_they_wrote_is_lost(direct: Store) -> None:
    with fault_proxy(direct) as proxy:
        proxy.fault(Fault.UNCONDITIONAL, to("PUT"))
        race = raced(proxy.store, processes=2, rounds=3)
    assert (race.numbers, race.lost) == ({2}, 3)


@pytest.mark.long
def test_of_eight_writers_one_commits_each_version(direct: Store) -> None:
    race = raced(direct, by="commit")
    assert (race.numbers, race.lost) == ({1}, 0)


def test_a_fault_that_a_request_cannot_have_fails_the_test(direct: Store) -> None:
    with pytest.RaisesGroup(ValueError, match="the proxy failed"), fault_proxy(direct) as proxy:
        proxy.fault(Fault.UPLOAD_CUT, to("GET"))
        client = http.client.HTTPConnection("127.0.0.1", proxy.store.port, timeout=30)
        client.request("GET", f"/{BUCKET}/nothing")
        with pytest.raises(http.client.RemoteDisconnected):
            client.getresponse()


def test_a_server_ends_with_its_block(tmp_path: Path) -> None:
    with moto(tmp_path) as store:
        assert listens(store.port)
    assert not listens(store.port)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no port is free')"]
    said = "never has ended with 1:\\nno port is free"
    with pytest.raises(RuntimeError, match=said), serving(command, tmp_path / "never", ready="listens"):
        pass


def test_a_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal\n"
        "from tests.stores.s3 import moto\n"
        f"with moto(pathlib.Path({str(tmp_path)!r})) as store:\n"
        "    print(store.port, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    wait_until(lambda: not listens(int(killed.stdout)), "the server to end")
