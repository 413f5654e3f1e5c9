"""Faults played on a small simulated cluster; each play is made once, whatever is announced beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streaming.changes.incidents.context import ChangeRow
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel, Observation
from streaming.sources.simulated import SimulatedSource
from streaming.sources.simulated.scenario_file import scenario_from
from tests.changes.conftest import rows_from
from tests.plays import SECOND, START, once

Fault = tuple[float, str, dict[str, Any]]
THREE, SIX = (1, 2, 3), (1, 2, 3, 4, 5, 6)


def observed(  # noqa: PLR0913 - what a test varies
    faults: Sequence[Fault],
    seconds: int,
    *,
    brokers: tuple[int, ...] = SIX,
    lag_millis: int = 10_000,
    racks: dict[str, str] | None = None,
    controllers: int = 1,
    elr: bool = False,
    **topic: Any,
) -> tuple[Observation, ...]:
    """Play faults on six partitions, unless the topic says otherwise; sessions end after six seconds."""
    defaults = {"name": "orders", "partitions": 6, "replication_factor": 3, "min_insync_replicas": 2}
    constants = {
        "replica_lag_time_max_ms": lag_millis, "broker_session_timeout_ms": 6_000,
        "leader_imbalance_check_interval_ms": 15_000, "log_dirs": 2, "controllers": controllers,
        "eligible_leader_replicas": elr,
    }  # fmt: skip
    document = {
        "description": "faults of a test", "brokers": list(brokers), "duration": seconds, "repeat": False,
        "constants": constants, "topics": [{**defaults, "records_per_second": 1, **topic}],
        "racks": racks or {}, "faults": [{"at": at, "action": action, **fields} for at, action, fields in faults],
    }  # fmt: skip
    return _played(json.dumps(document), seconds)


@once
def _played(document: str, seconds: int) -> tuple[Observation, ...]:
    source = SimulatedSource(
        scenario_from("test", json.loads(document)), seed=1, cluster_id=ClusterId("c"), cluster="c",
        name="metadata_log:c", epoch=START,
    )  # fmt: skip
    seen = source.poll(Micros(START + seconds * SECOND - 1))
    return tuple(it for it in seen if it.channel is Channel.REPLICATION)


def played(faults: Sequence[Fault], seconds: int, **more: Any) -> tuple[ChangeRow, ...]:
    """Play faults (:func:`observed`); the rows of the change log."""
    return rows_from(observed(faults, seconds, **more))


def of(action: str, *brokers: int, at: float) -> list[Fault]:
    """Make a fault of each of these brokers."""
    return [(at, action, {"broker": broker}) for broker in brokers]
