"""Groups of one real broker: a streams group (KIP-1071) as Kafka's own tool shows it, lag in seconds, and a restart."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.sandbox import Sandbox
from deploy.sandbox.waiting import wait_until
from streaming.errors import ConnectionRefused
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.samples.groups.described import list_groups
from streaming.sources.samples.groups.listed import gone_groups
from streaming.sources.samples.high_watermarks import SHARE_OF_AGE
from tests.sources.samples.streams_member import Member
from tests.sources.samples.test_groups_real import PERIOD, Clients, Collecting, Tables

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SOURCES = {"0": ["orders", "clicks"], "1": ["users"]}
PARTITIONS = {"orders": 3, "clicks": 2, "users": 1}
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
STEADY, BURSTS, EARLIER = range(3)
WRITE_SECONDS = 8.0
SECOND = 1_000_000


class Writer:
    """Writes to a partition at a steady pace and to one in bursts.

    Attributes:
        acknowledged: when each record of a partition was, wall clock, in the order of the offsets.
    """

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self.acknowledged: dict[int, list[float]] = {STEADY: [], BURSTS: [], EARLIER: []}

    def write(self, number: int, count: int) -> None:
        def note(error: Any, message: Any) -> None:
            assert error is None
            assert message.offset() == len(self.acknowledged[number])
            self.acknowledged[number].append(time.time())

        for _ in range(count):
            self._producer.produce("paced", b"x", partition=number, on_delivery=note)
        assert self._producer.flush(30) == 0

    def run(self) -> None:
        begin, written = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < WRITE_SECONDS:
            self.write(STEADY, 1)
            if passed > 3 * written:
                self.write(BURSTS, 30)
                written += 1
            time.sleep(0.02)


class Members:
    """Two members of one group, which beat until they leave."""

    def __init__(self, cluster: Sandbox) -> None:
        port = cluster.plan.brokers[1].client
        self._connections = [dialer(from_client({}))(Address("127.0.0.1", port), response_seconds=10) for _ in range(2)]
        self._members = [Member(each, "app", SOURCES) for each in self._connections]
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._leaving.is_set():
            for member in self._members:
                member.beat()
            time.sleep(0.5)
        for member in self._members:
            member.leave()

    def have_all(self) -> bool:
        return sum(len(numbers) for member in self._members for numbers in member.active.values()) == 4

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(30)

    def close(self) -> None:
        self.leave()
        for connection in self._connections:
            connection.close()


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: Callable[..., Sandbox]) -> Sandbox:
    sandbox = kafka_module_cluster(brokers=1)
    for topic, partitions in {**PARTITIONS, "paced": 3}.items():
        sandbox.admin.create_topic(topic, partitions=partitions, replication_factor=1)
    return sandbox


@pytest.fixture
def collecting(cluster: Sandbox, tmp_path: Path) -> Iterator[Collecting]:
    collecting = Collecting(cluster, tmp_path)
    yield collecting
    collecting.close()


def printed(cluster: Sandbox) -> tuple[str, int, int]:
    """State, members and coordinator of the group, as Kafka's tool prints them."""
    last = cluster.run_tool(TOOL, "--describe", "--group", "app", "--state").strip().splitlines()[-1].split()
    group, _, coordinator, state, members = last
    assert group == "app"
    return state, int(members), int(coordinator.strip("()"))


def of_app(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["group"] == "app"]


def test_a_streams_group_has_its_members_owners_and_lag(cluster: Sandbox, collecting: Collecting) -> None:
    clients = Clients(cluster.bootstrap_servers)
    clients.commit("app-before", 0, topic="orders", partitions=(0,))  # there is a coordinator now
    with closing(Members(cluster)) as members:
        wait_until(members.have_all, "every task is assigned")
        tables = collecting.until(
            lambda tables: {row["group_state"] for row in of_app(tables["groups"])} == {"Stable"}, "it is stable"
        )
        (group,) = of_app(tables["groups"])
        assert (group["group_protocol"], group["assignor"]) == ("streams", None)
        assert (group["group_state"], group["members"], group["coordinator"]) == printed(cluster) == ("Stable", 2, 1)
        assert {(row["topic"], row["partition"]): row["member"] for row in of_app(tables["group_offsets"])} == {
            (topic, number): "isrwatch" for topic, count in PARTITIONS.items() for number in range(count)
        }
        members.leave()
    clients.commit("app", 0, topic="users", partitions=(0,))
    tables = collecting.until(
        lambda tables: (
            {row["group_state"] for row in of_app(tables["groups"])} == {"Empty"}
            and len(of_app(tables["group_offsets"])) == 1
        ),
        "the members have left, and one offset is there",
    )
    (group,), (offset,) = of_app(tables["groups"]), of_app(tables["group_offsets"])
    assert (group["group_state"], group["members"], group["coordinator"]) == printed(cluster) == ("Empty", 0, 1)
    assert (offset["topic"], offset["partition"], offset["member"], offset["lag"]) == ("users", 0, None, 0)


def of_stuck(tables: Tables) -> list[dict[str, Any]]:
    return [row for row in tables["group_offsets"] if row["group"] == "stuck"]


def test_lag_in_seconds_is_the_age_of_the_first_record_that_was_not_read(
    cluster: Sandbox, collecting: Collecting
) -> None:
    writer, clients = Writer(cluster.bootstrap_servers), Clients(cluster.bootstrap_servers)
    writer.write(EARLIER, 10)
    clients.commit("stuck", 5, topic="paced", partitions=(EARLIER,))
    collecting.until(lambda tables: bool(of_stuck(tables)), "the first round")
    thread = threading.Thread(target=writer.run)
    thread.start()
    collecting.observe(WRITE_SECONDS + 1)
    thread.join()
    errors: dict[int, list[float]] = {STEADY: [], BURSTS: []}
    for tenths in (1, 5, 9):
        committed = {number: len(writer.acknowledged[number]) * tenths // 10 for number in errors}
        for number, offset in committed.items():
            clients.commit("stuck", offset, topic="paced", partitions=(number,))

        def is_shown(tables: Any, committed: dict[int, int] = committed) -> bool:
            rows = {row["partition"]: row for row in of_stuck(tables)}
            return all(
                rows[number]["committed_offset"] == offset and rows[number]["lag_seconds"] is not None
                for number, offset in committed.items()
            )

        tables = collecting.until(is_shown, "what was committed is shown, with seconds")
        for row in of_stuck(tables):
            if row["partition"] in committed:
                at = writer.acknowledged[row["partition"]][row["committed_offset"]]
                age = row["collected_at"].timestamp() - at
                errors[row["partition"]].append(row["lag_seconds"] - age)
                most = max(3 * PERIOD / SECOND, age / SHARE_OF_AGE) + 1  # the clients' own time on a busy machine
                assert abs(errors[row["partition"]][-1]) < most, row
    print({number: [round(error, 2) for error in found] for number, found in errors.items()})
    (earlier,) = (row for row in of_stuck(tables) if row["partition"] == EARLIER)
    assert (earlier["lag"], earlier["lag_seconds"]) == (5, None), "nobody saw when it was written"
    for number in errors:
        clients.commit("stuck", len(writer.acknowledged[number]), topic="paced", partitions=(number,))
    collecting.until(
        lambda tables: all(row["lag_seconds"] == 0 for row in of_stuck(tables) if row["partition"] in errors),
        "what was read is no lag",
    )


RESTARTED = {f"restarted-{number}" for number in range(30)}


def test_a_coordinator_that_restarts_lists_fewer_groups_and_never_says_that_they_are_gone(cluster: Sandbox) -> None:
    """Its log was not closed, and it leads a thousand partitions: for a moment it answers, and lists nothing."""
    cluster.admin.create_topic("wide", partitions=1_000, replication_factor=1)
    clients = Clients(cluster.bootstrap_servers)
    for group in RESTARTED:
        clients.commit(group, 0, topic="users", partitions=(0,))
    del clients  # librdkafka aborts where a broker is killed
    address = Address("127.0.0.1", cluster.plan.brokers[1].client)
    answers = list[tuple[int, frozenset[str]]]()

    def ask() -> bool:
        """Ask until the broker refuses, or lists all again."""
        try:
            with closing(dialer(from_client({}))(address, response_seconds=5)) as connection:
                while len(listed := RESTARTED & list_groups(connection).keys()) < len(RESTARTED):
                    answers.append((len(listed), gone_groups(connection, RESTARTED - listed)))
                    time.sleep(0.01)
                return True
        except ConnectionRefused:
            return False

    cluster.kill(1)
    started = threading.Thread(target=cluster.start, args=(1,))
    started.start()
    wait_until(ask, "all groups are listed again", seconds=120, every=0.02)
    started.join()
    print("groups listed, and answers:", Counter(count for count, _ in answers))
    assert {gone for _, gone in answers} <= {frozenset()}
    deleted = sorted(RESTARTED)[:10]
    clients = Clients(cluster.bootstrap_servers)
    for answer in clients.admin.delete_consumer_groups(deleted).values():
        answer.result(30)
    with closing(dialer(from_client({}))(address, response_seconds=5)) as connection:
        assert gone_groups(connection, RESTARTED - list_groups(connection).keys()) == set(deleted)
