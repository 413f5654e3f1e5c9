"""What incidents know of a cluster at a start is what they knew of it after their version, wherever a kill left it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.changes.incidents.context import ClusterContext
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import (
    Channel,
    ConfigObserved,
    ConfigOrigin,
    MaintenanceObserved,
    Observation,
    SourceKind,
)
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.contexts import read_contexts
from streaming.delta.incidents.rows import rows_of
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.streams.bus_source import SCHEMA
from streaming.sources.simulated import SimulatedSource, load_scenario

START = 1_700_000_000_000_000
SECOND = 1_000_000
BATCHES = 12


def observations_of(name: str) -> list[Observation]:
    """A scenario as the metadata log has it, with two leases and a configured time that is unset again."""
    source = SimulatedSource(
        load_scenario(name), seed=5, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c", epoch=Micros(START)
    )
    seen = [it for it in source.poll(Micros(START + 100 * SECOND)) if it.channel is Channel.REPLICATION]
    beside: list[Observation] = []
    for number, (at, broker, value) in enumerate([(15, 1, "12000"), (60, 3, None)], start=1):
        moment = Micros(START + at * SECOND)
        envelope = {
            **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), moment),
            "cluster_id": ClusterId("c"), "cluster": "c", "source_kind": SourceKind.NONE,
        }  # fmt: skip
        lease = {"lease": f"l{number}", "lease_until": Micros(moment + 20 * SECOND), "why": "new disk"}
        source_of = {"source": "maintenance:x", "sequence": number}
        beside.append(MaintenanceObserved(**envelope, **source_of, broker=BrokerId(broker), **lease))  # type: ignore[arg-type]
        time = ConfigObserved(
            **envelope, source="admin:x", sequence=number, origin=ConfigOrigin.DESCRIBE, topic="",
            key="replica.lag.time.max.ms", value=value,
        )  # type: ignore[arg-type]  # fmt: skip
        beside.append(time)
    return sorted([*seen, *beside], key=lambda it: it.occurred_not_after)


def batches(name: str) -> Sequence[pa.Table]:
    rows = [
        {"source": it.source, "position": position, "payload": encode(it), "damage": None}
        for position, it in enumerate(observations_of(name))
    ]
    size = -(-len(rows) // BATCHES)
    return [pa.Table.from_pylist(rows[begin : begin + size], schema=SCHEMA) for begin in range(0, len(rows), size)]


def followed(directory: Path) -> dict[int, dict[str, ClusterContext]]:
    """What incidents knew after each version, without any start."""
    incidents, by_version = IncidentFold(IncidentGaps()), {}
    for version, rows in ChangeReader(directory / PARTITION_CHANGES.name).poll():
        incidents.fold(rows_of(rows, version))
        by_version[version] = deepcopy(dict(incidents.contexts))
    return by_version


def non_trivial(contexts: dict[str, ClusterContext]) -> dict[str, ClusterContext]:
    """Without what says nothing."""
    counted = {
        key: replace(context, in_sync=+context.in_sync, lacking=+context.lacking, leaderless=+context.leaderless)
        for key, context in contexts.items()
    }
    return {key: context for key, context in counted.items() if context != ClusterContext()}


CASES = [("rolling_restart_unclean", 4), ("network_split", BATCHES)]
MORE = [(name, projected) for name, _ in CASES for projected in (1, 4, 8, BATCHES)]


@pytest.mark.parametrize(
    ("name", "projected"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE if case not in CASES)],
)
def test_a_start_knows_of_a_cluster_what_was_known_at_that_version(tmp_path: Path, name: str, projected: int) -> None:
    batch = ReplicationBatch(tmp_path)
    for number, rows in enumerate(batches(name), start=1):
        batch.apply(rows)
        if number == projected:
            batch.project()
    by_version = followed(tmp_path)
    assert len(by_version) >= BATCHES - 1
    for version, contexts in by_version.items():
        assert non_trivial(read_contexts(tmp_path, version)) == non_trivial(contexts), (
            f"version {version}, projected {projected}"
        )
