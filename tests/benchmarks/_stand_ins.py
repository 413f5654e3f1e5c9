"""Brokers that speak Kafka's protocol, in a process of their own, for clusters that no machine of ours could hold.

They answer a question that was put before with the same bytes, so that they cost little beside what is measured.
"""

from __future__ import annotations

import struct
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from tests.benchmarks._running import child
from tests.plugins.fake_kafka import TYPES, FakeKafka

BROKERS: Final = 6
PARTITIONS_OF_A_TOPIC: Final = 50
MEMBERS_OF_A_GROUP: Final = 4
END: Final = 1_000_000
COMMITTED: Final = 999_000
CONTROLLER: Final = 101
_CORRELATION: Final = slice(4, 8)  # of a request; of a response, behind its size, the same


class Size(NamedTuple):
    """How large a cluster is.

    Attributes:
        partitions: of three replicas.
        groups: of four members; each has committed.
        partitions_of_a_group: that many.
        brokers: that hold them.
    """

    partitions: int
    groups: int = 0
    partitions_of_a_group: int = 0
    brokers: int = BROKERS

    def __str__(self) -> str:
        read = f", {self.groups:,} groups x {self.partitions_of_a_group} partitions" if self.groups else ""
        return f"{self.partitions:,} partitions x 3 replicas, {self.brokers} brokers{read}"


class StandIns(FakeKafka):
    """A cluster of that size, in which nothing changes unless a broker fails."""

    newest_describe_quorum = 2
    types = TYPES | {
        request.API_KEY: (request, newest)
        for request, newest in (
            (ListGroupsRequest, 5),
            (DescribeGroupsRequest, 6),
            (OffsetFetchRequest, 9),
            (ListTransactionsRequest, 0),
            (DescribeTransactionsRequest, 0),
            (DescribeQuorumRequest, 2),
        )
    }

    def __init__(self, size: Size) -> None:
        self._size = size
        self._given: dict[tuple[int, bytes], bytes] = {}
        super().__init__(size.brokers)
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")  # several may be watched at once
        self.features = {"metadata.version": (29, 29), "group.version": (1, 1), "transaction.version": (2, 2)}
        self._create_topics()

    def _create_topics(self) -> None:
        missing = self._size.partitions - sum(len(topic.parts) for topic in self.view.topics.values())
        while missing > 0:
            topic, count = len(self.view.topics), min(PARTITIONS_OF_A_TOPIC, missing)
            missing -= count
            self.create_topic(name_of(topic), partitions=count, replicas=3)
            self.view.topics[name_of(topic)].id = id_of(topic)
            for part in self.view.topics[name_of(topic)].parts:
                part.ends = dict.fromkeys(part.replicas, END)

    def grow(self, size: Size) -> None:
        """Let there be more topics and groups."""
        self._size = size
        self._create_topics()
        self._given.clear()

    def _answered(self, broker: int, data: bytes) -> bytes:
        question = broker, data[:4] + data[8:]
        if question not in self._given:
            self._given[question] = super()._answered(broker, data)
            self.requests.clear()
        given = self._given[question]
        return given[:4] + data[_CORRELATION] + given[8:]

    def leave_isrs(self, broker: int) -> None:
        """Let a broker end: it leaves its ISRs, and others lead its partitions."""
        self.take_down(broker)
        self.fenced.add(broker)
        for topic in self.view.topics.values():
            for part in topic.parts:
                if broker in part.isr:
                    part.isr = [each for each in part.isr if each != broker]
                    part.elr, part.offline = [broker], [broker]
                    if part.leader == broker:
                        part.leader, part.leader_epoch = part.isr[0], part.leader_epoch + 1
        self._given.clear()

    def return_to_isrs(self, broker: int) -> None:
        """Let a broker come back, and into its ISRs."""
        self.bring_up(broker)
        self.fenced.discard(broker)
        for topic in self.view.topics.values():
            for part in topic.parts:
                if broker in part.replicas:
                    part.isr, part.elr, part.offline = [*part.replicas], [], []
        self._given.clear()

    def _nodes(self) -> tuple[int, ...]:
        return (CONTROLLER, *range(1, self._size.brokers + 1))

    def read_by(self, group: str) -> dict[str, list[int]]:
        """Give the partitions that a group reads, by topic."""
        number, topics = int(group.rpartition("-")[2]), len(self.view.topics)
        count = -(-self._size.partitions_of_a_group // PARTITIONS_OF_A_TOPIC)
        each = range(min(self._size.partitions_of_a_group, PARTITIONS_OF_A_TOPIC))
        return {name_of((number * count + one) % topics): [*each] for one in range(count)}

    def _ListGroupsRequest(self, broker: int, _: Any) -> Any:  # noqa: N802 - the name of the request
        listed = ListGroupsResponse.ListedGroup
        kind = {"protocol_type": "consumer", "group_state": "Stable", "group_type": "Classic"}
        numbers = (number for number in range(self._size.groups) if number % self._size.brokers == broker - 1)
        groups = [listed(group_id=f"group-{number:05d}", **kind) for number in numbers]
        return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)

    def _DescribeGroupsRequest(self, _: int, request: Any) -> Any:  # noqa: N802 - as above
        return DescribeGroupsResponse(
            throttle_time_ms=0, groups=[self._described_group(each) for each in request.groups]
        )

    def _described_group(self, group: str) -> Any:
        of_group: Any = DescribeGroupsResponse.DescribedGroup
        if not group.startswith("group-"):
            dead = {"group_state": "Dead", "protocol_type": "consumer", "protocol_data": "range", "members": []}
            return of_group(error_code=69, error_message=None, group_id=group, authorized_operations=set(), **dead)
        read = self.read_by(group)
        members = [
            of_group.DescribedGroupMember(
                member_id=f"{group}-{member}-7a5b4a0c-9b3e-4f0d-8d9e-0a1b2c3d4e5f", group_instance_id=None,
                client_id=f"{group}-{member}", client_host="/10.0.0.1", member_metadata=b"abc",
                member_assignment=assignment({topic: each[member::MEMBERS_OF_A_GROUP] for topic, each in read.items()}),
            )
            for member in range(MEMBERS_OF_A_GROUP)
        ]  # fmt: skip
        return of_group(
            error_code=0, error_message=None, group_id=group, authorized_operations=set(), group_state="Stable",
            protocol_type="consumer", protocol_data="range", members=members,
        )  # fmt: skip

    def _OffsetFetchRequest(self, _: int, request: Any) -> Any:  # noqa: N802 - as above
        return OffsetFetchResponse(
            throttle_time_ms=0, groups=[self._committed(each.group_id) for each in request.groups]
        )

    def _committed(self, group: str) -> Any:
        of_group: Any = OffsetFetchResponse.OffsetFetchResponseGroup
        of_topic = of_group.OffsetFetchResponseTopics
        part = partial(
            of_topic.OffsetFetchResponsePartitions, committed_offset=COMMITTED, committed_leader_epoch=1, metadata="",
            error_code=0,
        )  # fmt: skip
        topics = [
            of_topic(name=topic, partitions=[part(partition_index=number) for number in numbers])
            for topic, numbers in self.read_by(group).items()
        ]
        return of_group(group_id=group, error_code=0, topics=topics)

    def _ListTransactionsRequest(self, _: int, __: Any) -> Any:  # noqa: N802 - as above
        none: dict[str, Any] = {"unknown_state_filters": [], "transaction_states": []}
        return ListTransactionsResponse(throttle_time_ms=0, error_code=0, **none)

    def _DescribeTransactionsRequest(self, _: int, request: Any) -> Any:  # noqa: N802 - as above
        of_one = partial(
            DescribeTransactionsResponse.TransactionState, error_code=105, transaction_state="",
            transaction_timeout_ms=0, transaction_start_time_ms=-1, producer_id=-1, producer_epoch=-1, topics=[],
        )  # fmt: skip
        states = [of_one(transactional_id=each) for each in request.transactional_ids]
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)

    def _DescribeQuorumRequest(self, _: int, __: Any) -> Any:  # noqa: N802 - as above
        of_topic, of_node = DescribeQuorumResponse.TopicData, DescribeQuorumResponse.Node
        of_part = of_topic.PartitionData
        at_the_end = {"log_end_offset": END, "last_fetch_timestamp": 1_000, "last_caught_up_timestamp": 1_000}
        replicas = [of_part.ReplicaState(replica_id=node, **at_the_end) for node in self._nodes()]
        part = of_part(
            partition_index=0, error_code=0, error_message=None, leader_id=CONTROLLER, leader_epoch=1,
            high_watermark=END, current_voters=replicas[:1], observers=replicas[1:],
        )  # fmt: skip
        listener = of_node.Listener(name="CONTROLLER", host="127.0.0.1", port=0)  # nobody follows the log
        topics = [of_topic(topic_name="__cluster_metadata", partitions=[part])]
        nodes = [of_node(node_id=CONTROLLER, listeners=[listener])]
        return DescribeQuorumResponse(error_code=0, error_message=None, topics=topics, nodes=nodes)


def name_of(topic: int) -> str:
    """Name a topic by its number."""
    return f"orders-{topic:05d}"


def id_of(topic: int) -> uuid.UUID:
    """Give the id of a topic by its number."""
    return uuid.UUID(int=(1 << 64) + topic)


def assignment(topics: dict[str, list[int]]) -> bytes:
    """Write what a member may read, as the class ConsumerProtocol of Kafka's clients does."""
    encoded = struct.pack(">hi", 3, len(topics))
    for topic, numbers in topics.items():
        encoded += struct.pack(">h", len(topic)) + topic.encode()
        encoded += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return encoded + struct.pack(">i", -1)


class Brokers:
    """The brokers in their process, by the pipe to it.

    Attributes:
        ports: of the brokers.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.ports: dict[int, int] = pipe.recv()

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def harm(self, what: str, broker: int) -> None:
        """Let a broker be ``dead`` and then ``back``, or ``hung`` and then ``awake``; metadata go on to name it.

        Of one that is ``failed`` and then ``returned`` they say what Kafka would.
        """
        self._pipe.send((what, broker))
        self._pipe.recv()

    def grow(self, size: Size) -> None:
        """Let the cluster be of another, larger size, with as many brokers."""
        self._pipe.send(("grown", size))
        self._pipe.recv()


@contextmanager
def brokers(size: Size) -> Iterator[Brokers]:
    """Run a cluster of that size."""
    with child(serve, size) as (pipe, _):
        yield Brokers(pipe)


def serve(pipe: Pipe, size: Size) -> None:
    """Run the brokers until the pipe ends; each message is what becomes of a broker."""
    cluster = StandIns(size)
    pipe.send(dict(cluster.ports))
    while True:
        try:
            what, broker = pipe.recv()
        except EOFError:
            break
        if what == "grown":
            cluster.grow(broker)
        elif what == "hung":
            cluster.hang(broker, 3_600_000)
        elif what == "awake":
            cluster.hang(broker, 0)
        if what in {"dead", "awake"}:
            cluster.disconnect(broker)
        if what in {"back", "awake"}:
            cluster.bring_up(broker)
        if what == "failed":
            cluster.leave_isrs(broker)
        elif what == "returned":
            cluster.return_to_isrs(broker)
        pipe.send(None)
    cluster.close()
