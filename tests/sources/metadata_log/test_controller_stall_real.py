"""A real controller that stands still: what it writes then is read as its own silence, not as the end of a broker."""

from __future__ import annotations

import time

import pytest

from deploy.sandbox import wait_until
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation, SnapshotReason
from streaming.sources.metadata_log.decoding import decode_batches
from streaming.sources.metadata_log.image import ClusterImage
from tests.changes.conftest import rows_from
from tests.changes.test_incidents import named
from tests.plugins.sandbox import MakeSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.long]
MOST_STALLS = 8


def test_the_controller_is_the_suspect_of_what_its_own_silence_did(kafka_cluster: MakeSandbox) -> None:
    """Whom it fences, and whether anybody, is chance: the first broker whose heartbeat is not read in time."""
    cluster = kafka_cluster(brokers=3, broker_session_timeout_ms=9_000)
    cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    def seen() -> list[Observation]:
        now = Micros(time.time_ns() // 1_000)
        image = ClusterImage(cluster_id=ClusterId("c"), cluster="c", source="metadata_log:c")
        told = image.snapshot(snapshot_id="s", reason=SnapshotReason.START, collected_at=now)
        return told + [
            each for batch in decode_batches(cluster.read_metadata_log()) for each in image.apply(batch, now)
        ]

    time.sleep(3)  # of quiet before
    for _ in range(MOST_STALLS):
        cluster.pause(101)
        time.sleep(12.0)  # longer than a session
        cluster.resume(101)
        wait_until(lambda: cluster.admin.live_brokers() == {1, 2, 3}, "every broker to be back")
        time.sleep(3)  # of quiet after it
        if incidents := named(rows_from(seen())):
            break
    assert {kind for kind, _ in incidents} == {"controller_stall"}
    assert all(suspects == [101] for _, suspects in incidents)
