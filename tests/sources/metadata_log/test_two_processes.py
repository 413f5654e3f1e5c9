"""Two processes with one node id: what shows that both run, and where it is said."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import SourceKind
from streaming.contracts.records import RegisterBroker, RegisterController
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.metadata_log.decoding import REGISTER_CONTROLLER, EncodedBatch, decode
from streaming.sources.metadata_log.incarnations import LATELY, Incarnations
from streaming.sources.polling.view import ClusterView
from streaming.sources.protocol.quorum_messages import Leader, Quorum, QuorumMember
from streaming.sources.samples.kind import BrokerAnswer
from streaming.sources.samples.quorum import KIND, QuorumKind
from tests.sources.metadata_log.conftest import NO_OP, batch
from tests.sources.metadata_log.test_source import Watch

SECOND = 1_000_000
TWINS = (
    "two processes run as controller 101: they register by turns, C at host:1 (incarnation AAAAAAAAAAAAAAAAAAAAAQ) "
    "and C at host:2 (incarnation AAAAAAAAAAAAAAAAAAAAAg); stop the wrong one, or give it a node.id of its own, and a "
    "disk that is formatted with it"
)


def registers(process: int, controller: int = 101) -> bytes:
    """Encode the registration of a process, which listens at the port with its number."""
    end_points = b"\x02" + b"\x02C" + b"\x05host" + struct.pack(">Hhb", process, 0, 0)
    header = bytes((1, REGISTER_CONTROLLER, 0)) + struct.pack(">i", controller)
    return header + struct.pack(">QQ", 0, process) + b"\0" + end_points + b"\x01" + b"\0"


def log_of(*processes: int, since: int = 0) -> list[EncodedBatch]:
    """Give a log in which processes register one after the other, a millisecond apart, behind its first record."""
    records = enumerate([NO_OP, *(registers(each) for each in processes)], since)
    return [batch(offset, 1, record, timestamp=1_000 + offset) for offset, record in records]


def followed(*processes: int) -> Incarnations:
    incarnations = Incarnations()
    for each in log_of(*processes):
        incarnations.follow(decode(each))
    return incarnations


def test_a_process_that_registers_again_after_another_one_proves_that_both_run() -> None:
    assert followed(1, 2, 1).doubled() == followed(1, 2, 1, 2).doubled() == {"controller 101": TWINS}


@pytest.mark.parametrize("processes", [(1,), (1, 2), (1, 1), (1, 2, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_processes_that_follow_each_other_are_restarts(processes: tuple[int, ...]) -> None:
    assert followed(*processes).doubled() == {}


def test_it_is_over_also_after_the_clock_of_the_controllers_was_set_back() -> None:
    incarnations = followed(1, 2, 1)
    incarnations.follow(decode(batch(4, 1, NO_OP, timestamp=1_000 - 2 * LATELY // 1_000)))
    assert incarnations.doubled() == {}


def test_it_is_said_once_and_that_it_is_over_a_minute_after_the_last_turn(quorum: Any, tmp_path: Path) -> None:
    seen = Watch(quorum, tmp_path / "checkpoint.json")
    log = log_of(1, 2, 1, 2, 1, 2)
    seen.follow(*log[:3])
    assert TWINS not in seen.lines
    seen.follow(*log[3:])
    assert seen.lines.count(TWINS) == 1
    end = log[-1].last_offset + 1
    late = 1_000 + end + LATELY // 1_000
    seen.follow(batch(end, 1, NO_OP, timestamp=late - 1_000))
    assert seen.source.doubled
    seen.follow(batch(end + 1, 1, NO_OP, timestamp=late + 1_000))
    assert seen.lines[-1] == "two processes no longer register as controller 101"
    seen.tail.close()


def test_a_log_that_is_read_from_its_start_again_makes_no_twins(quorum: Any, tmp_path: Path) -> None:
    """Every process of before registers in it once more."""
    seen = Watch(quorum, tmp_path / "checkpoint.json")
    seen.follow(*log_of(1, 2))
    quorum.log.clear()
    quorum.append(batch(0, 1, registers(1)))
    seen.until(lambda: seen.offset == 0)
    assert seen.source.doubled == {}
    seen.tail.close()


def of_doctor(quorum: Any, primary_source: Any = "auto") -> list[str]:
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=quorum.addresses()),
        collect=CollectSettings(primary_source=primary_source),
    )
    return [sentence for status, sentence in CHECKS["metadata log"](settings) if status is Status.WARNING]


def test_doctor_names_both_kinds_of_twins(quorum: Any) -> None:
    quorum.append(*log_of(1, 2, 1))
    quorum.voters, quorum.observers = {1: 60_000, 2: 60_000, 3: 13}, {2: 77}
    twins, disks = of_doctor(quorum)
    assert twins == TWINS
    assert disks.startswith("two processes run with node.id 2: with directory AAAAAAAAAAAAAAAAAAAAAg as a voter, with ")
    assert of_doctor(quorum, "poll") == [disks]


def member(node: int, directory: str | None, caught_up_ms: int | None, *, is_voter: bool = False) -> QuorumMember:
    return QuorumMember(node, is_voter, 5, caught_up_ms, caught_up_ms, directory)


def test_two_brokers_with_one_id_are_said_once_by_what_the_quorum_sees() -> None:
    """The controller refuses the second one, which follows the metadata log all the same (as 4.3.1 was seen to do)."""
    lines: list[str] = []
    kind, view = QuorumKind(Micros(10 * SECOND), lines.append), ClusterView(ClusterId("c"), 1, brokers={}, topics={})
    envelope = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(1))
    envelope |= {"cluster_id": ClusterId("c"), "cluster": "c", "source": "s", "source_kind": SourceKind.NONE}  # type: ignore[dict-item]
    leader, first, second = member(101, None, 9_000, is_voter=True), member(2, "a", 8_600), member(2, "b", 8_900)
    for members in ((leader, first), (leader, first, second), (leader, first, second), (leader, second)):
        answer = BrokerAnswer(KIND, BrokerId(1), Micros(0), Quorum(0, Leader(101, 4), {}, members, 5))
        kind.shown(view, answer, envelope)
    assert len(lines) == 1
    assert lines[0].startswith("two processes run with node.id 2: with directory a as an observer, with directory b as")


def test_brokers_are_followed_as_controllers_are() -> None:
    incarnations = Incarnations()
    for at, process in enumerate("aba"):
        broker = RegisterBroker(broker=BrokerId(3), broker_epoch=at, incarnation_id=process)
        controller = RegisterController(controller=3, incarnation_id="a")
        incarnations.follow(replace(decode(batch(at, 1, NO_OP)), records=(broker, controller)))
    assert list(incarnations.doubled()) == ["broker 3"]
