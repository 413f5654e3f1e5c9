"""A real streams group (KIP-1071): the tables equal Kafka's own tool while its members are there, and after."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from deploy.sandbox.waiting import wait_until
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from tests.sources.samples.streams_member import Member
from tests.sources.samples.test_groups_real import Clients, Collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deploy.sandbox import Sandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCES = {"0": ["orders", "clicks"], "1": ["users"]}
PARTITIONS = {"orders": 3, "clicks": 2, "users": 1}
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"


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


@pytest.fixture
def cluster(kafka_cluster: Callable[..., Sandbox]) -> Sandbox:
    sandbox = kafka_cluster(brokers=1)
    for topic, partitions in PARTITIONS.items():
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
