"""Whatever administrators and fate do: who applies the records arrives at the state that the controller has."""

from __future__ import annotations

from typing import Any

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import PartitionObserved, SnapshotReason
from streaming.model.controller.change import Mode
from streaming.sources.metadata_log.image import ClusterImage
from tests.blocks import singly


def told(it: Any) -> dict[tuple[str, int], tuple[object, ...]]:
    """Apply everything that was committed; give each partition's state."""
    image = ClusterImage(cluster_id=ClusterId("c"), cluster="c", source="s")
    image.load(commit.batch for commit in it.commits)
    snapshot = image.snapshot(snapshot_id="1", reason=SnapshotReason.START, collected_at=Micros(0))
    return {
        (seen.topic, seen.partition): (
            (seen.leader, seen.leader_epoch, seen.partition_epoch),
            (seen.replicas, seen.adding_replicas, seen.removing_replicas),
            (seen.isr, seen.elr, seen.last_known_elr),
        )
        for seen in singly(snapshot)
        if isinstance(seen, PartitionObserved)
    }


def true(it: Any) -> dict[tuple[str, int], tuple[object, ...]]:
    registry = it.cluster.controller.registry
    return {
        (registry.topics[key.topic_id].topic, key.partition): (
            (state.leader, state.leader_epoch, state.partition_epoch),
            (state.replicas, state.adding_replicas, state.removing_replicas),
            (state.isr, state.elr, state.last_known_elr),
        )
        for key, state in registry.partitions.items()
    }


def test_the_records_tell_every_state_on_the_way(lab: Any) -> None:
    it = lab(brokers=(1, 2, 3, 4), log_dirs=2)
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)], min_isr=3)
    admin, seen = it.cluster.admin, []
    acts = (
        lambda: it.cluster.kill(3),
        lambda: it.run(it.cluster.now + 12_000),
        lambda: admin.alter_config("min.insync.replicas", "2", "t"),
        lambda: it.hold(4, 1),
        lambda: admin.alter_partition_reassignments({first: (4, 2), second: (1, 2)}),
        lambda: it.run(it.cluster.now + 100),
        lambda: admin.alter_partition_reassignments({first: None}),
        lambda: admin.create_partitions("t", ((4, 1, 2),)),
        lambda: it.cluster.fail_log_dir(2, "dir-1"),
        lambda: it.run(it.cluster.now + 3_000),
        lambda: admin.alter_config("min.insync.replicas", "1"),
        lambda: admin.elect_leaders(Mode.PREFERRED, [first, second]),
        lambda: admin.unregister_broker(3),
        lambda: admin.delete_topic(first.topic_id),
    )
    for act in acts:
        act()
        it.check()
        assert told(it) == true(it)
        seen.append(true(it))
    assert len({repr(state) for state in seen}) >= 9
