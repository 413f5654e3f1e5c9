"""A producer whose record arrives after its transaction was aborted (KIP-890): what it leaves behind hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import Connection, dialer
from streaming.sources.protocol.security import from_client

RETRIED = {14, 15, 16, 51}  # coordinators that load, are elsewhere, or have not written the markers yet


class Left(NamedTuple):
    """What hangs, or why it does not: Kafka's error code, 0 for none."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    error: int


def leave_hanging(servers: str, transactional_id: str, topic: str, number: int = 0) -> Left:
    """Write a record in a transaction, abort it, and write another one without another transaction.

    Of Kafka since 3.6 the leader refuses that one (``transaction.partition.verification.enable``): ``error`` says so.
    """
    with ExitStack() as stack:
        dial = dialer(from_client({}))
        nodes = [
            stack.enter_context(closing(dial(Address(host, int(port)), response_seconds=10)))
            for host, _, port in (server.rpartition(":") for server in servers.split(","))
        ]
        request = InitProducerIdRequest(version=2, transactional_id=transactional_id, transaction_timeout_ms=60_000)
        init = answered(nodes, request, InitProducerIdResponse, lambda one: one.error_code)
        owner = {
            "transactional_id": transactional_id,
            "producer_id": init.producer_id,
            "producer_epoch": init.producer_epoch,
        }
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[number])]
        add = AddPartitionsToTxnRequest(
            version=3, **{f"v3_and_below_{key}": value for key, value in owner.items()}, v3_and_below_topics=topics
        )
        answered(
            nodes,
            add,
            AddPartitionsToTxnResponse,
            lambda one: one.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

        def write(sequence: int) -> Any:
            request = produce(transactional_id, topic, number, (init.producer_id, init.producer_epoch, sequence))
            answer = answered(nodes, request, ProduceResponse, lambda one: written(one).error_code, retried={3, 6})
            return written(answer)

        assert write(0).error_code == 0
        answered(nodes, EndTxnRequest(version=3, **owner, committed=False), EndTxnResponse, lambda one: one.error_code)
        time.sleep(1)  # the markers are written
        late = write(1)
        return Left(init.producer_id, init.producer_epoch, late.base_offset, late.error_code)


def written(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def answered(
    nodes: list[Connection], request: Any, response: Any, error: Callable[[Any], int], retried: set[int] = RETRIED
) -> Any:
    """Ask one node after the other until one of them is the right one."""
    until = time.monotonic() + 30
    while True:
        for node in nodes:
            answer = node.call(request, response, lambda one: one)
            if error(answer) not in retried:
                return answer
        assert time.monotonic() < until, answer
        time.sleep(0.1)


def produce(transactional_id: str, topic: str, number: int, producer: tuple[int, int, int]) -> Any:
    builder = DefaultRecordBatchBuilder(2, 0, True, *producer, 1000)
    builder.append(0, int(time.time() * 1000), b"k", b"v", [])
    of_topic = ProduceRequest.TopicProduceData
    part = of_topic.PartitionProduceData(index=number, records=bytes(builder.build()))
    topics = [of_topic(name=topic, partition_data=[part])]
    return ProduceRequest(version=9, transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)
