"""A listener that one broker of three lacks, on a real cluster: what is polled through it, and what is sampled."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.commands.doctor_cluster import poll_once
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SourceKind
from streaming.settings import ClusterSettings, Settings
from streaming.sources.polling.source import AdminSource

pytestmark = [pytest.mark.kafka, pytest.mark.long]
PERIOD = Micros(500_000)
MAP = "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,MONITOR:PLAINTEXT"


def listeners(ports: Any, *, has_monitor: bool) -> dict[str, str]:
    names = {"CLIENT": ports.client, "REPLICATION": ports.replication}
    names |= {"MONITOR": ports.metrics} if has_monitor else {}
    text = ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items())
    return {"listeners": text, "advertised.listeners": text}


class Polled:
    """A poller of a cluster, and what it reports, folded."""

    def __init__(self, servers: str) -> None:
        self.source = AdminSource(
            bootstrap_servers=servers, client={}, cluster="test", name="admin:a", poll_micros=PERIOD,
            view_micros=PERIOD, config_micros=Micros(600_000_000), source_kind=SourceKind.POLL,
        )  # fmt: skip
        self.state, self.events = ReplicationState(), list[tuple[str, Any, str]]()

    def until(self, enough: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, (self.shown(), self.brokers(), self.events)
            folded = fold(self.state, self.source.poll(Micros(time.time_ns() // 1_000)))
            self.state.apply(folded.touched)
            self.events += [
                (event.event, event.event_broker, str(change.observation))
                for change in folded.changes
                for event in change.events
            ]

    def shown(self) -> dict[str, tuple[int, bool, tuple[int, ...]]]:
        return {
            f"{each.topic}-{each.partition}": (each.leader, each.is_offline, each.isr)
            for each in self.state.partitions()
            if not each.is_deleted
        }

    def brokers(self) -> dict[int, tuple[bool | None, bool | None]]:
        return {each.broker: (each.is_fenced, each.is_unseen) for each in self.state.brokers.values()}

    def has(self, kind: EventKind, broker: int) -> bool:
        return any(found[:2] == (kind, broker) for found in self.events)


def test_what_a_listener_hides_is_neither_offline_nor_dead_until_it_is() -> None:
    plan = plan_cluster(brokers=3, properties={"listener.security.protocol.map": MAP})
    own = {broker: listeners(ports, has_monitor=broker != 3) for broker, ports in plan.brokers.items()}
    plan = replace(plan, node_properties=own)
    servers = ",".join(f"127.0.0.1:{plan.brokers[broker].metrics}" for broker in (1, 2))
    with Sandbox(plan) as cluster:
        cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]])
        cluster.admin.create_topic("only3", assignment=[[3]])
        polled = Polled(servers)
        with closing(polled.source):
            polled.until(lambda: len(polled.shown()) == 5 and polled.brokers().get(3) == (False, True))
            assert {name: shown[:2] for name, shown in polled.shown().items()} == {
                "orders-0": (1, False), "orders-1": (2, False), "orders-2": (3, False), "orders-3": (3, False),
                "only3-0": (3, False),
            }  # fmt: skip
            settings = Settings(cluster=ClusterSettings(name="t", bootstrap_servers=servers))
            said = [sentence for _, sentence in poll_once(settings)]
            about_it = [each[:32] for each in said if "broker 3" in each]
            assert about_it == ["broker 3 has no listener MONITOR"]
            assert not [event for event in polled.events if event[0] == EventKind.OFFLINE]

            cluster.stop(3)
            polled.until(lambda: polled.brokers()[3] == (True, None) and polled.shown()["only3-0"][1])
            assert polled.has(EventKind.FENCED, 3)
            assert {leader for leader, *_ in polled.shown().values()} == {1, 2, -1}
            print("Kafka says of the partition without a leader:", cluster.admin.describe("only3"))
            print("isrwatch:", polled.shown()["only3-0"])

            cluster.start(3)
            polled.until(lambda: polled.brokers()[3] == (False, True) and not polled.shown()["only3-0"][1])
