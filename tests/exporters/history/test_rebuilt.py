"""The state as of any version is what whoever followed the changes until then knew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from exporters.changes import AsOf, SnapshotDraft, apply_changes
from exporters.history.rebuilt import rebuilt
from exporters.history.versions import versions_of
from exporters.reader import Reader
from exporters.snapshot import ReplicationSnapshot
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.tail import ChangeTail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss")


def essence(snapshot: ReplicationSnapshot) -> dict[str, Any]:
    return {
        cluster_id: {
            "cluster": cluster.cluster,
            "partitions": sorted(cluster.partitions()),
            "brokers": dict(cluster.brokers),
            "totals": cluster.totals,
            "departures": {broker: dict(causes) for broker, causes in cluster.departures.items() if causes},
            "tally": {state: count for state, count in cluster.tally.states.items() if count},
            "sources": {key: source for key, source in cluster.sources.items() if key[0] == "replication"},
        }
        for cluster_id, cluster in snapshot.clusters.items()
    }


def followed(tables: Path, version: int) -> ReplicationSnapshot:
    """Every change up to a version, one after the other."""
    snapshot = ReplicationSnapshot()
    for at, rows in ChangeTail(tables / PARTITION_CHANGES.name).poll(version):
        draft = SnapshotDraft(snapshot)
        apply_changes(draft, at, rows, AsOf())
        snapshot = draft.finish(at, 0, 0)
    return snapshot


@pytest.mark.parametrize("part", range(4))
def test_the_state_as_of_a_version_is_what_following_the_changes_gives(tables: Path, part: int) -> None:
    for version in versions_of(tables / PARTITION_CHANGES.name)[part::4]:
        assert (version, essence(rebuilt(tables, version))) == (version, essence(followed(tables, version)))


def test_as_of_the_newest_version_it_is_the_current_state(tables: Path) -> None:
    newest = versions_of(tables / PARTITION_CHANGES.name)[-1]
    assert essence(rebuilt(tables, newest)) == essence(Reader(tables).refresh())
