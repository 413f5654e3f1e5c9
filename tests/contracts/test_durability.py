"""What settings risk, against what happens to a topic when brokers go, by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.durability import WORST_FIRST, TopicDurability, Weakness, is_in_one_rack
from streaming.contracts.health import effective_min_isr, is_under_min_isr

W = Weakness
TOPICS = st.builds(
    TopicDurability,
    topic=st.sampled_from(["orders", "__consumer_offsets", "connect-configs", "app-store-changelog"]),
    replication_factor=st.integers(1, 6),
    min_isr=st.none() | st.integers(1, 6),
    allows_unclean_election=st.none() | st.booleans(),
    cleanup_policy=st.sampled_from([None, "delete", "compact", "compact,delete", "delete, compact"]),
    is_in_one_rack=st.booleans(),
)


@pytest.mark.parametrize(
    ("topic", "weaknesses"),
    [
        (TopicDurability("t", 3, 2), ()),
        (TopicDurability("t", 3), ()),
        (TopicDurability("t", 3, 1), (W.MIN_ISR_ONE,)),
        (TopicDurability("t", 3, 3), (W.NO_REPLICA_TO_SPARE,)),
        (TopicDurability("t", 3, 4), (W.MIN_ISR_ABOVE_REPLICATION_FACTOR,)),
        (TopicDurability("t", 2, 1, allows_unclean_election=True), (W.UNCLEAN_ELECTION, W.MIN_ISR_ONE)),
        (TopicDurability("t", 1, 1, allows_unclean_election=True, is_in_one_rack=True), (W.ONE_REPLICA,)),
        (TopicDurability("t", 1, 2), (W.MIN_ISR_ABOVE_REPLICATION_FACTOR, W.ONE_REPLICA)),
        (TopicDurability("t", 3, 2, is_in_one_rack=True), (W.ONE_RACK,)),
        (TopicDurability("t", 3, 2, cleanup_policy="delete"), ()),
        (TopicDurability("__consumer_offsets", 3, 2, cleanup_policy="delete"), (W.NOT_COMPACTED,)),
        (TopicDurability("__consumer_offsets", 3, 2, cleanup_policy="compact"), ()),
        (TopicDurability("__share_group_state", 3, 2, cleanup_policy="delete"), ()),
    ],
)
def test_each_weakness_has_its_settings(topic: TopicDurability, weaknesses: tuple[Weakness, ...]) -> None:
    assert topic.weaknesses() == weaknesses


@given(TOPICS)
def test_weaknesses_are_what_happens_when_brokers_go(topic: TopicDurability) -> None:
    found = topic.weaknesses()
    assert list(found) == sorted(found, key=WORST_FIRST.index)
    replicas = tuple(range(topic.replication_factor))
    effective = effective_min_isr(topic.min_isr, replicas)
    # One broker down: nothing is left to read, or a full ISR less one is under min ISR (also of a minimum above RF).
    has_none = not replicas[1:]
    is_refused = is_under_min_isr(effective, replicas[1:])
    spare = {W.ONE_REPLICA, W.NO_REPLICA_TO_SPARE, W.MIN_ISR_ABOVE_REPLICATION_FACTOR}
    assert bool(spare & {*found}) == bool(has_none or is_refused)
    # An acknowledged record may be on one broker: an ISR of one is enough.
    may_be_alone = effective is not None and not is_under_min_isr(effective, replicas[:1])
    assert bool({W.ONE_REPLICA, W.MIN_ISR_ONE} & {*found}) == (may_be_alone or has_none)
    assert (W.UNCLEAN_ELECTION in found) == (bool(topic.allows_unclean_election) and not has_none)


@given(TOPICS)
def test_the_fix_of_a_minimum_leaves_a_durable_topic(topic: TopicDurability) -> None:
    for weakness in topic.weaknesses():
        assert topic.reason(weakness)
        assert "{" not in topic.reason(weakness)
        fix = topic.fix(weakness)
        if fix.startswith("set min.insync.replicas="):
            minimum = int(fix.removeprefix("set min.insync.replicas=").split(",")[0])
            mended = topic._replace(min_isr=minimum).weaknesses()
            by_minimum = {W.MIN_ISR_ONE, W.NO_REPLICA_TO_SPARE, W.MIN_ISR_ABOVE_REPLICATION_FACTOR, W.ONE_REPLICA}
            assert by_minimum.isdisjoint(mended)
        else:
            assert "reassign" in fix or fix.startswith("set ")


def test_replicas_are_in_one_rack_only_if_there_is_another() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: None}
    assert is_in_one_rack((1, 2), racks)
    assert not is_in_one_rack((1, 3), racks)
    assert not is_in_one_rack((1,), racks)
    assert not is_in_one_rack((1, 4), racks)
    assert not is_in_one_rack((4, 5), racks)
    assert not is_in_one_rack((1, 2), {1: "a", 2: "a", 4: None})
