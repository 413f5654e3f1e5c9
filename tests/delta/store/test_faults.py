"""Answers that are lost, refusals, hangs: a commit is made once or not at all, and its writer knows which."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import writer
from streaming.delta.log.queries import read_all
from streaming.delta.log.storage import table_at
from streaming.delta.store import objects
from streaming.delta.store.lease import FOLDER, NUMBERS_LEFT, JobLease, LeaseWatch
from streaming.delta.store.objects import prove_exclusive
from streaming.delta.store.place import Place, Url, place_of
from streaming.errors import ConfigurationError, IsrwatchError, TableRefused
from streaming.jobs.application import recover
from tests.delta.store.test_lease import Clock
from tests.delta.test_change_log import changed
from tests.examples import examples
from tests.stores.fault_proxy import FaultProxy, fault_proxy
from tests.stores.faults import Fault, to
from tests.stores.s3 import moto
from tests.stores.store import Store

pytestmark = [pytest.mark.process, pytest.mark.store]
ENTRY, DATA = r"_delta_log/\d{20}\.json", r"\.parquet"
OF_PUT = [fault for fault in Fault if fault not in {Fault.UNCONDITIONAL, Fault.ANSWER_CUT}]
OF_PUTS = [pytest.param(fault, marks=() if fault in {Fault.ANSWER_LOST, Fault.BUSY_BEFORE} else pytest.mark.long)
           for fault in OF_PUT]  # fmt: skip
"""Of requests that are repeated in one way, whatever they write."""
OF_GET = [fault for fault in Fault if fault not in {Fault.UNCONDITIONAL, Fault.UPLOAD_CUT}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with moto(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultProxy]:
    with fault_proxy(store) as running:
        yield running


@pytest.fixture(autouse=True)
def races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a store prove itself in a few races."""
    monkeypatch.setattr(objects, "ROUNDS", 4)


def at(proxy: FaultProxy, name: str, patience: str = "2s", answer: str = "400ms") -> Url:
    """A place in the store that the proxy stands before; its client is impatient."""
    options = {**proxy.store.options, "timeout": answer, "retry_timeout": patience}
    place = place_of(f"{proxy.store.url}/{name}", options)
    assert isinstance(place, Url)
    return place


def check(place: Url, commits: int) -> None:
    """Each commit is there, once and whole."""
    _, rows = changed()
    stored = read_all(table_at(place / "partition_changes"))
    versions = stored["version"].to_pylist()
    assert sorted(versions) == [version for version in range(1, commits + 1) for _ in range(rows.num_rows)]
    assert [number for number, _ in ChangeReader(place / "partition_changes").poll()] == list(range(1, commits + 1))
    assert ChangeLog(place).at("a").position == commits


@pytest.mark.parametrize("fault", OF_PUT, ids=lambda fault: fault.name)
def test_a_fault_of_the_entry_costs_and_doubles_nothing(proxy: FaultProxy, fault: Fault) -> None:
    check_fault(proxy, fault, ENTRY)


@pytest.mark.parametrize("fault", OF_PUTS, ids=lambda fault: fault.name)
def test_a_fault_of_a_data_file_costs_and_doubles_nothing(proxy: FaultProxy, fault: Fault) -> None:
    check_fault(proxy, fault, DATA)


def check_fault(proxy: FaultProxy, fault: Fault, path: str) -> None:
    """Let one request of a commit have a fault, in the middle of three."""
    _, rows = changed()
    place = at(proxy, f"{fault.name}-{len(path)}")
    log = ChangeLog(place)
    log.commit(rows, {"a": 1})
    rule = proxy.fault(fault, to("PUT", path), times=1)
    log.commit(rows, {"a": 2})
    assert len(rule.hit) == 1
    proxy.release()
    log.commit(rows, {"a": 3})
    check(place, 3)


def test_a_commit_whose_answers_are_lost_for_long_is_found_and_counts(proxy: FaultProxy) -> None:
    _, rows = changed()
    place = at(proxy, "long")
    log = ChangeLog(place)
    proxy.fault(Fault.ANSWER_LOST, to("PUT", ENTRY))
    log.commit(rows, {"a": 1})
    proxy.release()
    log.commit(rows, {"a": 2})
    check(place, 2)


def test_while_the_store_does_not_say_the_commit_is_tried_again_and_then_given_up(proxy: FaultProxy) -> None:
    _, rows = changed()
    place = at(proxy, "gone")
    log = ChangeLog(place)
    log.commit(rows, {"a": 1})
    proxy.fault(Fault.BUSY_BEFORE, to("PUT", ENTRY))
    proxy.fault(Fault.BUSY_BEFORE, to("GET", ENTRY))
    with (
        patch.object(writer, "SECONDS_UNTIL_GIVEN_UP", 1.5),
        pytest.raises(IsrwatchError, match=r"cannot write s3://.*partition_changes: s3://isrwatch failed"),
    ):
        log.commit(rows, {"a": 2})
    proxy.release()
    check(place, 1)
    again = ChangeLog(place)
    again.commit(rows, {"a": 2})
    check(place, 2)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_random_faults_lose_and_double_nothing(proxy: FaultProxy, seed: int) -> None:
    chance, (_, rows) = Random(seed), changed()
    place, commits = at(proxy, f"random-{seed}"), 8
    log = ChangeLog(place)
    for number in range(1, commits + 1):
        if chance.random() < 0.6:
            method, faults = chance.choice([("PUT", OF_PUT), ("PUT", OF_PUT), ("GET", OF_GET)])
            path = chance.choice([ENTRY, DATA])
            proxy.fault(chance.choice(faults), to(method, path), times=chance.randint(1, 2))
        log.commit(rows, {"a": number})
        proxy.release()
    check(place, commits)


@pytest.mark.parametrize("fault", OF_PUTS, ids=lambda fault: fault.name)
def test_a_fault_of_one_request_ends_no_lease_and_gives_it_to_no_other_job(proxy: FaultProxy, fault: Fault) -> None:
    folder = at(proxy, f"lease-{fault.name}") / FOLDER
    active, restarted = JobLease(folder, 15.0), JobLease(folder, 15.0)
    active.take()
    rule = proxy.fault(fault, to("PUT", FOLDER), times=1)
    for _ in range(3):
        with suppress(OSError):
            active.renew()
    assert len(rule.hit) == 1
    proxy.release()
    active.renew()
    proxy.fault(fault, to("PUT", FOLDER), times=1)
    with suppress(OSError):
        restarted.take()
    proxy.release()
    restarted.take()
    restarted.renew()
    with pytest.raises(TableRefused, match="has taken over"):
        active.renew()


def test_a_renewal_is_two_requests_and_a_look_of_a_standby_one(proxy: FaultProxy) -> None:
    folder, clock = at(proxy, "lease-counted") / FOLDER, Clock()
    active = JobLease(folder, 15.0)
    active.take()
    watch = LeaseWatch(JobLease(folder, 15.0), clock)
    assert not watch.take_if_lapsed()
    for _ in range(NUMBERS_LEFT):
        active.renew()
    before = proxy.counts.copy()
    active.renew()
    deleted = ("POST", "other")  # one request of S3 deletes any number of objects
    assert proxy.counts - before == {("PUT", "other"): 1, ("HEAD", "other"): 1, deleted: 1}
    for _ in range(NUMBERS_LEFT + 1):
        assert not watch.take_if_lapsed()
    before = proxy.counts.copy()
    assert not watch.take_if_lapsed()
    assert proxy.counts - before == {("GET", "other"): 1}


def test_a_store_that_ignores_the_condition_is_refused(proxy: FaultProxy) -> None:
    proxy.fault(Fault.UNCONDITIONAL, to("PUT"))
    with pytest.raises(ConfigurationError, match=r"is no store for tables: \d of 8 writers of one name were told"):
        prove_exclusive(at(proxy, "race", "30s", "10s"))


def test_a_store_that_looks_at_a_name_and_then_takes_the_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a gateway does: what is small enough it takes at once, and a commit is not small."""
    there = dict[Place, bytes]()

    def create(name: Place, content: bytes) -> bool:
        is_there = name in there
        for _ in range(len(content) // 4096):
            time.sleep(0.005)
        return False if is_there else there.setdefault(name, content) is not None

    for verb, does in (("create", create), ("get", there.__getitem__), ("delete", there.pop)):
        monkeypatch.setattr(objects, verb, does)
    with pytest.raises(ConfigurationError, match="is no store for tables"):
        prove_exclusive(Path("gateway"))


def test_the_first_start_and_doctor_refuse_a_store_in_which_commits_would_be_lost(
    proxy: FaultProxy, tmp_path: Path
) -> None:
    place = at(proxy, "first-start", "30s", "10s")
    proxy.fault(Fault.UNCONDITIONAL, to("PUT"))
    with pytest.raises(ConfigurationError, match="is no store for tables"):
        recover(place, print)
    config = tmp_path / "isrwatch.toml"
    options = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in place.options)
    config.write_text(f'[tables]\ndirectory = "{place}"\n[tables.storage]\n{options}\n')
    for fix, said in ((False, "is no store for tables"), (True, "of several writers of one name one wins")):
        if fix:
            proxy.release()
        done = CliRunner().invoke(app, ["doctor", "--config", str(config)])
        assert said in " ".join(done.output.split())
    recover(place, print)
    ChangeLog(place)
    proxy.fault(Fault.UNCONDITIONAL, to("PUT"))
    recover(place, print)  # where there are tables already it has been proven


def test_a_commit_is_two_requests_and_an_idle_reader_asks_four_times_a_second(proxy: FaultProxy) -> None:
    _, rows = changed()
    place = at(proxy, "counted")
    log = ChangeLog(place)
    log.commit(rows, {"a": 1})
    before = proxy.counts.copy()
    for number in range(2, 7):
        log.commit(rows, {"a": number})
    counted = proxy.counts - before
    assert {kind: count for kind, count in counted.items() if kind[1] != "other"} == {
        ("PUT", "data"): 5,
        ("PUT", "entry"): 5,
    }
    assert counted["PUT", "other"] <= 2, "what was announced"
