"""Which partitions have series of their own: what is wrong first, then what changed last, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.metrics.series_filter import choose
from exporters.read_model.cluster_samples import LaggingReplica, ReplicaOffsets
from exporters.read_model.draft import ClusterDraft
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import RECENT_MICROS, ClusterSnapshot, ReplicationSnapshot
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import ClusterState, PartitionState

SECOND: Final = 1_000_000
NOW: Final = 1_790_000_000 * SECOND
OF_ONE: Final = 38
"""Series of a partition with three replicas."""
GENERATED: Final = Path("dashboards/generated")


def partition(topic: str, number: int, changed: float | None = None, **more: Any) -> PartitionState:
    changed_at = None if changed is None else NOW - int(changed * SECOND)
    key = (f"id-of-{topic}", topic, number)
    return PartitionState("id", "main", *key, (1, 2, 3), (1, 2, 3), leader=1, changed_at=changed_at, **more)


def cluster_of(
    partitions: Iterable[PartitionState], *, watermark: int = NOW, last: ClusterSnapshot | None = None, **samples: Any
) -> ClusterSnapshot:
    draft = ClusterDraft(last or ClusterSnapshot(cluster=ClusterState("id", "main", SourceKind.METADATA_LOG)))
    for each in partitions:
        draft.put_partition(each)
    draft.put_cluster(ClusterState("id", "main", SourceKind.METADATA_LOG, primary_watermark=watermark))
    draft.put_samples(**samples)
    return draft.finish()


def chosen(cluster: ClusterSnapshot, limit: int = 1_000) -> tuple[set[tuple[str, int]], int]:
    detail = choose([cluster], limit).get("id")
    if detail is None:
        return set(), 0
    return {(topic, number) for topic, numbers in detail.partitions.items() for number in numbers}, detail.left_out


def test_a_healthy_partition_that_did_not_change_has_none() -> None:
    assert chosen(cluster_of([partition("a", 0), partition("a", 1, changed=3_601)])) == (set(), 0)


def test_a_partition_keeps_its_series_for_an_hour_after_a_change() -> None:
    cluster = cluster_of([partition("a", 0, changed=10), partition("a", 1, changed=20)])
    assert chosen(cluster)[0] == {("id-of-a", 0), ("id-of-a", 1)}
    later = cluster_of([], last=cluster, watermark=NOW - 20 * SECOND + RECENT_MICROS)
    assert chosen(later)[0] == {("id-of-a", 0), ("id-of-a", 1)}
    after = cluster_of([], last=later, watermark=NOW - 20 * SECOND + RECENT_MICROS + 1)
    assert chosen(after)[0] == {("id-of-a", 0)}
    assert chosen(cluster_of([], last=after, watermark=NOW + RECENT_MICROS))[0] == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"is_offline": True},
        {"is_under_min_isr": True},
        {"is_under_replicated": True},
        {"adding_replicas": (4,)},
        {"removing_replicas": (3,)},
    ],
)
def test_a_partition_that_is_not_healthy_has_them_however_old_its_last_change(wrong: dict[str, Any]) -> None:
    assert chosen(cluster_of([partition("a", 0, changed=90_000, **wrong)]))[0] == {("id-of-a", 0)}


def test_a_replica_that_is_behind_makes_its_partition_one_that_is_not_healthy() -> None:
    behind = LaggingReplica("id-of-a", "a", 1, 2, 700, NOW, None, NOW)
    gone = behind._replace(topic_id="id of what was deleted")
    cluster = cluster_of([partition("a", 0), partition("a", 1)], lagging_replicas=(behind, gone))
    assert chosen(cluster)[0] == {("id-of-a", 1)}


def test_the_limit_takes_the_worst_first_and_then_the_newest_change_and_counts_what_is_left_out() -> None:
    worst_first = [
        partition("z", 0, is_offline=True),
        partition("y", 0, is_under_min_isr=True),
        partition("x", 0, is_under_replicated=True),
        partition("w", 0, adding_replicas=(4,)),
        partition("v", 0, changed=5),
        partition("u", 0, changed=6),
    ]
    cluster = cluster_of(reversed(worst_first))
    for count in range(len(worst_first) + 1):
        expected = {(each.topic_id, 0) for each in worst_first[:count]}
        assert chosen(cluster, count * OF_ONE) == (expected, len(worst_first) - count)
        assert chosen(cluster, (count + 1) * OF_ONE - 1)[0] == expected


def page_of(cluster: ClusterSnapshot, limit: int) -> str:
    snapshot = ReplicationSnapshot(clusters={"id": cluster}, version=1)
    health = ExporterHealth("1.2.3", 1, 0.1, 0)
    return plain(Exposition(60.0, detail_limit=limit).render(snapshot, health, NOW, ScrapeRequest())).decode()


def test_a_partition_has_no_more_series_than_are_counted_for_it() -> None:
    since = dict.fromkeys(("offline_since", "under_replicated_since", "under_min_isr_since"), NOW - SECOND)
    wrong = dict.fromkeys(("is_offline", "is_under_replicated", "is_under_min_isr"), True)
    known: dict[str, Any] = {"leader_epoch": 1, "min_isr_effective": 2, "is_at_min_isr": False}
    known |= {"elr": (1, 2, 3), "last_known_elr": (2,)}
    behind = tuple(LaggingReplica("id-of-a", "a", 0, each, 7, NOW - SECOND, 3.0, NOW) for each in (1, 2, 3))
    cluster = cluster_of([partition("a", 0, **since, **wrong, **known)], lagging_replicas=behind)
    lines = page_of(cluster, OF_ONE).splitlines()
    of_partition = [each for each in lines if each.startswith("kafka_replication") and 'partition="0"' in each]
    assert len(of_partition) == OF_ONE
    assert 'kafka_replication_exporter_partitions_without_detail{cluster="main"} 0' in lines
    left_out = page_of(cluster, OF_ONE - 1).splitlines()
    assert not any(each.startswith("kafka_replication") and 'partition="0"' in each for each in left_out)
    assert 'kafka_replication_exporter_partitions_without_detail{cluster="main"} 1' in left_out
    assert [any('condition="series_left_out"' in each for each in shown) for shown in (lines, left_out)] == [
        False,
        True,
    ]


def test_ten_thousand_healthy_partitions_have_at_most_nine_series_each_and_six_megabytes_of_text() -> None:
    cluster = cluster_of(partition(f"topic-{number // 20:05}", number % 20) for number in range(10_000))
    offsets = {
        topic_id: dict.fromkeys(topic.partitions, (ReplicaOffsets(1, 1_000_000, 1_234_567),))
        for topic_id, topic in cluster.topics.items()
    }
    draft = ClusterDraft(cluster)
    draft.put_offsets(offsets, NOW)
    page = page_of(draft.finish(), 20_000)
    series = sum(len(family.samples) for family in text_string_to_metric_families(page))
    assert series <= 9 * 10_000
    assert len(page) <= 6_000_000
