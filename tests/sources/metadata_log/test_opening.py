"""Opening the metadata log where it is authorised, else it is said why not; and who votes in its quorum."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved, SnapshotBegin, SourceKind
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector import opening
from streaming.sources.metadata_log import quorum as quorum_module
from streaming.sources.metadata_log.opening import ASKED_EVERY, REPORTED_EVERY, VotersSource
from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.protocol.sockets import Failure, NoAnswer
from tests.sources.metadata_log.conftest import FRAMES, OF_ZOOKEEPER, Hang, Node

NOW = Micros(2_000_000_000_000_000)


@pytest.fixture
def open_log(quorum: Any, tmp_path: Path) -> Callable[..., Any]:
    def opened(primary_source: str, report: Callable[[str], None] = print) -> MetadataLogSource | None:
        cluster = ClusterSettings(bootstrap_servers=quorum.addresses())
        settings = Settings(cluster=cluster, collect=CollectSettings(primary_source=primary_source))
        return opening.open_log(settings, tmp_path, report)

    return opened


@pytest.mark.parametrize("primary_source", ["auto", "metadata_log"])
def test_the_log_is_the_primary_source_where_it_is_authorised(quorum: Any, open_log: Any, primary_source: str) -> None:
    quorum.append(*FRAMES)
    source = open_log(primary_source)
    assert source.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    source.close()


def check_reads(source: MetadataLogSource) -> None:
    """Check that the log is read now, from a full report on."""
    observations = [observed for _ in range(20) for observed in source.poll(NOW)]
    assert source.is_primary
    assert isinstance(observations[0], SnapshotBegin)
    source.close()


def test_a_log_that_is_refused_at_the_start_is_read_as_soon_as_it_is_permitted(quorum: Any, open_log: Any) -> None:
    quorum.append(*FRAMES)
    quorum.fetch_error = 31
    source = open_log("auto")
    with pytest.raises(ConnectionRefused, match="lacks ClusterAction"):
        source.poll(NOW)
    assert not source.is_primary
    quorum.fetch_error = 0
    check_reads(source)


def test_controllers_that_cannot_be_reached_are_waited_for_and_then_tried_in_the_background(
    quorum: Any, open_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CONNECT_SECONDS", 0.1)
    quorum.append(*FRAMES)
    quorum.fetch_error = 6
    source = open_log("auto")
    assert not source.is_primary
    quorum.fetch_error = 0
    check_reads(source)


def test_a_refusal_is_an_error_where_only_the_log_is_wanted(quorum: Any, open_log: Any) -> None:
    quorum.fetch_error = 31
    with pytest.raises(ConnectionRefused, match="lacks ClusterAction"):
        open_log("metadata_log")


def test_polling_on_demand_asks_no_controller(quorum: Any, open_log: Any) -> None:
    assert open_log("poll") is None
    assert not quorum.requests


def test_a_cluster_with_zookeeper_is_polled_because_it_has_no_metadata_log(quorum: Any, open_log: Any) -> None:
    quorum.versions = OF_ZOOKEEPER
    lines: list[str] = []
    assert open_log("auto", lines.append) is None
    assert ["with ZooKeeper, which has no metadata log" in line for line in lines] == [True]
    with pytest.raises(ConnectionRefused, match=r"with ZooKeeper, which has no metadata log: set collect.primary_sour"):
        open_log("metadata_log")


def test_a_proxy_that_leaves_out_the_quorum_is_not_taken_for_zookeeper(quorum: Any, open_log: Any) -> None:
    quorum.versions = {55: -1}
    with pytest.raises(ConnectionRefused, match=r"does not say who leads the metadata quorum .*: a proxy leaves that"):
        open_log("metadata_log")


THEN = 1_795_000_000_000


@pytest.fixture
def voters(quorum: Any) -> Callable[[], VotersSource]:
    quorum.voters = {1: THEN, 2: THEN - 600, 3: THEN - 200}
    quorum.versions = {55: 1}  # Kafka before 3.9 gives no addresses of controllers, which nothing of this needs
    servers = tuple(Address("127.0.0.1", node.port) for node in quorum.nodes.values())
    bootstrap = Bootstrap(servers, dialer(from_client({})))
    return lambda: VotersSource(bootstrap, cluster="main", name="quorum:a", clock=lambda: Micros(clock[0]))


clock = [0]
led: list[bool | None] = []


def told(source: VotersSource, now: int) -> list[Any]:
    clock[0] = now
    reported = source.poll(Micros(THEN * 1_000 - now))  # the wall clock runs backwards, which delays nothing
    assert all(isinstance(it, ControllerObserved) and it.source_kind is SourceKind.NONE for it in reported)
    led.extend(it.is_led for it in reported if isinstance(it, ControllerObserved))
    return [(it.voters, it.caught_up) for it in reported if isinstance(it, ControllerObserved)]


def test_voters_are_reported_when_one_falls_behind_and_every_half_minute(quorum: Any, voters: Any) -> None:
    source, now = voters(), 0
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]
    assert told(source, now := now + ASKED_EVERY) == []
    assert told(source, now + 1) == []
    quorum.voters[3] = THEN - 60_000
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2))]
    quorum.voters[2] = -1  # the leader has not heard of it
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1,))]
    assert told(source, now + REPORTED_EVERY) == [((1, 2, 3), (1,))]


def test_it_is_unknown_who_has_caught_up_without_a_leader_that_gives_its_time(quorum: Any, voters: Any) -> None:
    source, now = voters(), 0
    assert told(source, now := now + ASKED_EVERY)
    quorum.quorum_error = 14
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), None)]
    quorum.quorum_error, quorum.voters[1] = 0, -1
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), None)], "there is a leader again"
    quorum.voters[1] = THEN
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]


def test_brokers_that_may_not_be_asked_do_not_say_that_nobody_leads(quorum: Any, voters: Any) -> None:
    source, now = voters(), 0
    led.clear()
    quorum.quorum_error = 14
    assert told(source, now := now + ASKED_EVERY) == [(None, None)]
    quorum.quorum_error = 0
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]
    quorum.partition_error = 31
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), None)]
    quorum.partition_error, quorum.leader = 0, -1
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), None)]
    assert led == [False, True, None, False]


@pytest.mark.parametrize(("is_late", "is_led"), [(True, False), (False, None)])
def test_brokers_that_wait_for_a_leader_are_late_and_who_hangs_up_is_a_proxy(
    voters: Any, monkeypatch: pytest.MonkeyPatch, *, is_late: bool, is_led: bool | None
) -> None:
    monkeypatch.setattr(quorum_module, "DISCOVERY_SECONDS", 0.2)

    def hang_up(*_: Any) -> Any:
        time.sleep(0.4 if is_late else 0)
        raise Hang

    source = voters()
    led.clear()
    assert told(source, ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]
    monkeypatch.setattr(Node, "answer_DescribeQuorumRequest", hang_up)
    assert told(source, 2 * ASKED_EVERY) == [((1, 2, 3), None)]
    assert led == [True, is_led]


@pytest.mark.usefixtures("voters")
def test_a_broker_that_is_silent_whatever_it_is_asked_says_nothing_of_the_quorum(
    quorum: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still, and the proxy of the others hangs up where it does not know a question."""
    *answering, silent = (Address("127.0.0.1", node.port) for node in quorum.nodes.values())
    dial = dialer(from_client({}))

    def dialled(address: Address, **more: Any) -> Any:
        if address == silent:
            raise NoAnswer(f"{address} did not respond in time", Failure.SILENT)
        return dial(address, **more)

    def hang_up(*_: Any) -> Any:
        raise Hang

    bootstrap = Bootstrap((*answering, silent), dialled)
    source = VotersSource(bootstrap, cluster="main", name="quorum:a", clock=lambda: Micros(clock[0]))
    led.clear()
    assert told(source, ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]
    monkeypatch.setattr(Node, "answer_DescribeQuorumRequest", hang_up)
    assert told(source, 2 * ASKED_EVERY) == [((1, 2, 3), None)]
    assert led == [True, None]


def test_voters_are_those_of_the_cluster_that_was_rebuilt_at_the_same_addresses(quorum: Any, voters: Any) -> None:
    source, now = voters(), ASKED_EVERY
    assert told(source, now)
    quorum.cluster_id, quorum.quorum_error = "another-cluster", 14
    reported = told(source, now + ASKED_EVERY)
    assert reported == [(None, None)], "these voters are of the cluster before"
    quorum.quorum_error, clock[0] = 0, now + 2 * ASKED_EVERY
    (observed,) = source.poll(Micros(THEN))
    assert (observed.cluster_id, observed.caught_up) == ("another-cluster", (1, 2, 3))
