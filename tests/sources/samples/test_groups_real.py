"""Groups of a real cluster: the tables equal Kafka's own tools at rest, and a hung broker costs only its own groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.sandbox import Sandbox
from deploy.sandbox.waiting import wait_until
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.contracts.sample_blocks import BrokerGroupsObserved
from streaming.jobs.shards.samples import SampleBatch
from streaming.name_patterns import NamePatterns
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups.groups import GroupsKind
from streaming.sources.samples.offsets import OffsetsKind
from tests.jobs.shards.test_batch import published, rows
from tests.sources.samples.opened import open_samples

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PARTITIONS = 6
PATIENCE = 60.0
PERIOD = Micros(500_000)
TOOLS = "org.apache.kafka.tools.consumer"
Tables = dict[str, list[dict[str, Any]]]


class Clients:
    """Producers and members of groups."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        self._members: list[Consumer] = []

    def produce(self, topic: str, each: int) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        for number in range(PARTITIONS):
            for _ in range(each):
                producer.produce(topic, b"x", partition=number)
        assert producer.flush(30) == 0

    def join(self, group: str, client: str, protocol: str = "classic", topic: str = "orders") -> Consumer:
        member = Consumer({
            "bootstrap.servers": self._servers, "group.id": group, "client.id": client, "group.protocol": protocol,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        })  # fmt: skip
        member.subscribe([topic])
        self._members.append(member)
        return member

    def wait_assigned(self, *members: Consumer) -> None:
        until = time.monotonic() + PATIENCE
        while any(len(member.assignment()) * len(members) != PARTITIONS for member in members):
            assert time.monotonic() < until, "the partitions are assigned"
            for member in members:
                member.poll(0.2)

    def commit(self, group: str, offset: int, topic: str = "orders", partitions: Sequence[int] = range(6)) -> None:
        offsets = [TopicPartition(topic, number, offset) for number in partitions]

        def has_committed() -> bool:
            """A new coordinator refuses for a moment."""
            named = [ConsumerGroupTopicPartitions(group, offsets)]
            asked = self.admin.alter_consumer_group_offsets(named, request_timeout=10)  # librdkafka may wait in vain
            (answer,) = asked.values()
            return not answer.exception(30) and not any(one.error for one in answer.result().topic_partitions)

        wait_until(has_committed, f"{group} to commit")

    def delete_records(self, topic: str, number: int, before: int) -> None:
        def has_deleted() -> bool:
            asked = self.admin.delete_records([TopicPartition(topic, number, before)], request_timeout=10)
            (answer,) = asked.values()
            return not answer.exception(30)

        wait_until(has_deleted, f"{topic}-{number} to begin at {before}")

    def close(self) -> None:
        for member in self._members:
            member.close()


class Collecting:
    """The samples of a cluster, and the tables of a job that applies them."""

    def __init__(self, cluster: Sandbox, folder: Path) -> None:
        self._folder, self._batch, self._position = folder, SampleBatch(folder), 0
        self._source = open_samples(cluster.bootstrap_servers, self._kinds, PERIOD, seconds=1.0)

    @staticmethod
    def _kinds() -> list[Any]:
        directories = DirectoriesKind(Micros(60_000_000))
        offsets = OffsetsKind(PERIOD, directories)
        return [directories, offsets, GroupsKind(PERIOD, offsets, NamePatterns())]

    def observe(self, seconds: float) -> list[Observation]:
        """Take what the source reports for so long, and apply it."""
        seen: list[Observation] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            seen += self._source.poll(Micros(time.time_ns() // 1000))
        self._batch.apply(published(seen, start=self._position))
        self._position += len(seen)
        return seen

    def tables(self) -> Tables:
        return {name: rows(self._folder, name) for name in ("groups", "group_offsets")}

    def until(self, holds: Callable[[Tables], bool], what: str) -> Tables:
        until = time.monotonic() + PATIENCE
        while True:
            self.observe(1.0)
            if holds(tables := self.tables()):
                return tables
            names = sorted(row["group"] for row in tables["groups"])
            assert time.monotonic() < until, f"waited in vain until {what}; there are {names}"

    def close(self) -> None:
        self._source.close()


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: Callable[..., Sandbox]) -> Sandbox:
    sandbox = kafka_module_cluster(brokers=3, broker_session_timeout_ms=6000)
    sandbox.admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
    sandbox.admin.create_topic("old", partitions=PARTITIONS, replication_factor=3)
    return sandbox


@pytest.fixture(scope="module")
def clients(cluster: Sandbox) -> Iterator[Clients]:
    """Groups of every kind, at rest."""
    clients = Clients(cluster.bootstrap_servers)
    for topic in ("orders", "old"):
        clients.produce(topic, 20)
    two = [clients.join("classic", f"classic-{number}") for number in range(2)]
    new = [clients.join("consumer", f"consumer-{number}", "consumer") for number in range(2)]
    fresh = [clients.join("fresh", "fresh-1")]
    clients.join("idle", "idle-1", "consumer", topic="no-such-topic").poll(0.5)
    for members in (two, new, fresh):
        clients.wait_assigned(*members)
    for members, offset in ((two, 20), (new, 5)):  # caught up, and lagging
        for member in members:
            member.commit(
                offsets=[TopicPartition("orders", one.partition, offset) for one in member.assignment()],
                asynchronous=False,
            )
    clients.commit("empty", 12)
    clients.commit("some", 7, partitions=(1, 4))
    clients.commit("below", 3, topic="old")
    for number in range(PARTITIONS):
        clients.delete_records("old", number, 10)
    cluster.run_tool(
        "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name", "shared",
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    cluster.run_tool(
        f"{TOOLS}.ConsoleShareConsumer", "--topic", "orders", "--group", "shared",
        "--max-messages", "30", "--timeout-ms", "15000",
    )  # fmt: skip
    yield clients
    clients.close()


@pytest.fixture
def collecting(cluster: Sandbox, clients: Clients, tmp_path: Path) -> Iterator[Collecting]:  # noqa: ARG001 - the groups
    collecting = Collecting(cluster, tmp_path)
    yield collecting
    collecting.close()


def printed(cluster: Sandbox, tool: str, *arguments: str) -> Iterator[dict[str, str]]:
    """The rows of the tables that a tool prints, by column."""
    names: list[str] = []
    for line in cluster.run_tool(f"{TOOLS}.group.{tool}", "--describe", "--all-groups", *arguments).splitlines():
        words = line.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        if words[:1] == ["GROUP"]:
            names = words
        elif names and words and not line.startswith("Consumer group"):
            yield dict(zip(names, words, strict=False))


def number_of(word: str) -> int | None:
    return None if word == "-" else int(word)


NAMES = {"classic", "consumer", "fresh", "idle", "empty", "some", "below", "shared"}


def difference(row: dict[str, Any]) -> int | None:
    """What Kafka's tool calls lag."""
    return None if row["committed_offset"] is None else row["high_watermark"] - row["committed_offset"]


def whole(collecting: Collecting) -> Tables:
    return collecting.until(
        lambda tables: (
            {row["group"] for row in tables["groups"]} == NAMES
            and any(row["group"] == "shared" for row in tables["group_offsets"])
            and all(row["high_watermark"] is not None for row in tables["group_offsets"])
        ),
        "every group and position is known",
    )


def test_the_tables_equal_what_kafkas_own_tools_print_at_rest(cluster: Sandbox, collecting: Collecting) -> None:
    tables = whole(collecting)
    rows = {
        (row["group"], row["topic"], row["partition"]): row
        for row in tables["group_offsets"]
        if row["group_protocol"] != "share"
    }
    ours = {
        key: (row["committed_offset"], row["high_watermark"], difference(row), row["member"])
        for key, row in rows.items()
    }
    theirs = {
        (row["GROUP"], row["TOPIC"], int(row["PARTITION"])): (
            *(number_of(row[name]) for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")),
            None if row["CLIENT-ID"] == "-" else row["CLIENT-ID"],
        )
        for row in printed(cluster, "ConsumerGroupCommand")
        if row["TOPIC"] != "-"
    }
    assert ours == theirs
    assert Counter(group for group, _, _ in ours) == {
        **dict.fromkeys(("classic", "consumer", "fresh", "empty", "below"), PARTITIONS),
        "some": 2,
    }
    differing = {key[0]: row["lag"] for key, row in rows.items() if row["lag"] != difference(row)}
    assert differing == {"below": 10}, "Kafka's tool counts what was deleted"
    assert {row["beyond"] for row in rows.values() if row["committed_offset"] is not None} == {0}
    lost = {row["group"]: row["records_lost"] for row in tables["group_offsets"] if row["committed_offset"] is not None}
    assert lost == {"classic": 0, "consumer": 0, "empty": 0, "some": 0, "below": 7}

    shared = {row["partition"]: row["lag"] for row in tables["group_offsets"] if row["group_protocol"] == "share"}
    lags = {int(row["PARTITION"]): number_of(row["LAG"]) for row in printed(cluster, "ShareGroupCommand")}
    assert shared == {number: lag for number, lag in lags.items() if lag is not None}
    assert any(shared.values()), "some records are left"


def test_the_states_and_members_equal_what_kafkas_own_tools_print(cluster: Sandbox, collecting: Collecting) -> None:
    tables = whole(collecting)
    states = {
        row["GROUP"]: (row["STATE"], int(row["#MEMBERS"]), int(row["ID"].strip("()")))
        for tool in ("ConsumerGroupCommand", "ShareGroupCommand")
        for row in printed(cluster, tool, "--state")
    }
    assert states == {
        row["group"]: (row["group_state"], row["members"], row["coordinator"]) for row in tables["groups"]
    }
    assert {row["group"]: row["group_protocol"] for row in tables["groups"]} == {
        **dict.fromkeys(NAMES, "classic"),
        **dict.fromkeys(("consumer", "idle"), "consumer"),
        "shared": "share",
    }
    assignors = {row["group"]: row["assignor"] for row in tables["groups"] if row["members"]}
    assert assignors == {"classic": "range", "consumer": "uniform", "fresh": "range", "idle": "uniform"}


def test_a_stuck_group_falls_behind_and_one_that_was_deleted_is_gone_with_its_offsets(
    clients: Clients, collecting: Collecting
) -> None:
    clients.commit("doomed", 2)
    before = collecting.until(
        lambda tables: (
            any(row["group"] == "doomed" for row in tables["group_offsets"])
            and all(row["lag"] == 0 for row in tables["group_offsets"] if row["group"] == "classic")
        ),
        "the group is there",
    )
    assert {row["lag"] for row in before["group_offsets"] if row["group"] == "doomed"} == {18}
    clients.produce("orders", 4)
    clients.admin.delete_consumer_groups(["doomed"])["doomed"].result(30)
    after = collecting.until(
        lambda tables: (
            {row["lag"] for row in tables["group_offsets"] if row["group"] == "classic"} == {4}
            and all(row["group"] != "doomed" for table in tables.values() for row in table)
        ),
        "one is behind, one is gone",
    )
    assert len(after["groups"]) == len(before["groups"]) - 1


def test_a_hung_broker_costs_only_its_own_groups_until_they_have_another_coordinator(
    cluster: Sandbox, collecting: Collecting
) -> None:
    tables = collecting.until(lambda tables: len(tables["groups"]) == 8, "every group is there")
    coordinators = {row["group"]: row["coordinator"] for row in tables["groups"]}
    # What a share coordinator waits for may be the hung one: that must not cost the other groups of the same broker.
    candidates = Counter(broker for broker in coordinators.values() if broker != coordinators["shared"])
    hung, _ = candidates.most_common()[0]
    others = {group for group, broker in coordinators.items() if broker != hung}
    assert others, coordinators
    cluster.pause(hung)
    try:
        seen = collecting.observe(3.0)  # less than its session
        blocks = (block for block in seen if isinstance(block, BrokerGroupsObserved))
        reports = Counter(group for block in blocks for group in block.arrays.get("group", ()))
        # Where shares are waited for, the other groups of that broker are asked before, once in each turn of a second.
        waiting = {group for group, broker in coordinators.items() if broker == coordinators["shared"]}
        assert all(reports[group] >= (1 if group in waiting else 2) for group in others), reports
        moved = collecting.until(
            lambda tables: (
                len(tables["groups"]) == 8
                and all(row["coordinator"] != hung for row in tables["groups"])
                and all(
                    row["lag"] is not None for row in tables["group_offsets"] if row["committed_offset"] is not None
                )
            ),
            "every group has another coordinator, and every partition another leader",
        )
        assert {row["group"] for row in moved["groups"]} == coordinators.keys()
    finally:
        cluster.resume(hung)
