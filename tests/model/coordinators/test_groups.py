"""Groups and their coordinators: who reads what, and what is committed. Latency 1 ms."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, partition_for
from streaming.model.clients.positions import GroupProtocol, ResetPolicy
from streaming.model.cluster.descriptions import group_offsets
from streaming.model.constants import Error
from streaming.model.coordinators.group_state import GroupState
from streaming.model.invariants.groups import GroupWatch
from streaming.model.messages.clients import CONSUMER_OFFSETS
from streaming.model.storage.log import Span

EAGER = {"assignors": ("range",)}
COOPERATIVE = {"assignors": ("cooperative-sticky",)}
CONSUMER = {"protocol": GroupProtocol.CONSUMER}
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"]
)


def world(it: Any, partitions: int = 4, offsets: tuple[tuple[int, ...], ...] = ((1, 2, 3),)) -> Any:
    """A topic that is written to, and the topic of groups."""
    it.topic(CONSUMER_OFFSETS, offsets)
    keys = it.topic("t", [(1, 2, 3)] * partitions)
    for key in keys:
        it.keep_writing(key, 1, 500)
    return keys


def owned(*members: Any) -> list[list[int]]:
    return [sorted(key.partition for key in member.membership.owned) for member in members]


def fairly(members: list[Any]) -> bool:
    """Two each, and each of the four once."""
    shares = owned(*members)
    return sorted(key for share in shares for key in share) == [0, 1, 2, 3] and {len(it) for it in shares} == {2}


def view(it: Any) -> dict[int, Any]:
    return {each.topic_partition.partition: each for each in group_offsets(it.cluster)}


# ------------------------------------------------------------------ who reads what


@PROTOCOLS
def test_statement_32_each_partition_is_read_by_one_member_and_goes_on_when_it_fails(
    it: Any, protocol: dict[str, Any]
) -> None:
    """A killed member is noticed after its session of 45 s."""
    keys = world(it)
    watch = GroupWatch(it.cluster)
    first = it.member("g", "t", **protocol)
    it.run(10_000)
    assert owned(first) == [[0, 1, 2, 3]]
    second = it.member("g", "t", node=2_001, **protocol)
    it.run(20_000)
    assert owned(first, second) == [[0, 1], [2, 3]]
    watch.check()
    it.cluster.kill(second.node)
    it.run(60_000)
    assert owned(first) == [[0, 1]]
    it.run(75_000)
    assert owned(first) == [[0, 1, 2, 3]]
    watch.check()
    for key in keys[2:]:
        span = first.consumed[key].spans[-1]
        assert span.end >= 146, "it goes on where the other stopped committing, and misses nothing"
        assert first.consumed[key].missing_from(it.cluster.disks[1].replicas[key].log) == []


@PROTOCOLS
def test_statement_38_members_beyond_the_number_of_partitions_stay_idle(lab: Any, protocol: dict[str, Any]) -> None:
    """More partitions give the idle member work, once the others have heard of them."""
    it = lab(metadata_max_age_ms=10_000)
    it.topic(CONSUMER_OFFSETS, [(1, 2, 3)])
    it.topic("t", [(1, 2, 3)] * 2)
    members = [it.member("g", "t", node=2_000 + number, **protocol) for number in range(3)]
    it.run(10_000)
    assert sorted(owned(*members)) == [[], [0], [1]]
    it.cluster.admin.create_partitions("t", ((BrokerId(1), BrokerId(2), BrokerId(3)),))
    it.run(40_000)
    assert sorted(owned(*members)) == [[0], [1], [2]]


@PROTOCOLS
def test_a_member_that_leaves_is_not_waited_for(it: Any, protocol: dict[str, Any]) -> None:
    world(it)
    members = [it.member("g", "t", node=2_000 + number, **protocol) for number in range(2)]
    it.run(15_000)
    assert fairly(members)
    members[0].close()
    it.cluster.flush(members[0].node)
    it.run(22_000)
    assert owned(members[1]) == [[0, 1, 2, 3]]


def test_the_first_rebalance_waits_for_still_more_members(it: Any) -> None:
    """3 s after the first member, and 3 s more for each that comes meanwhile: one rebalance for all of them."""
    world(it)
    first = it.member("g", "t", **EAGER)
    it.run(2_000)
    second = it.member("g", "t", node=2_001, **EAGER)
    it.run(6_400)
    assert owned(first, second) == [[], []]
    it.run(7_000)
    assert (owned(first, second), first.membership.generation) == ([[0, 1], [2, 3]], 1)


def test_eager_members_stop_during_a_rebalance_and_cooperative_ones_go_on(lab: Any) -> None:
    """A joining member makes the group rebalance while the other cannot answer: what is read meanwhile."""
    read = {}
    for name, protocol in (("eager", EAGER), ("cooperative", COOPERATIVE)):
        it = lab()
        (key, *_) = world(it)
        members = [it.member("g", "t", node=2_000 + number, **protocol) for number in range(2)]
        it.run(15_000)
        it.cluster.pause(members[1].node)
        it.member("g", "t", node=2_002, **protocol)
        it.run(30_000)
        read[name] = members[0].consumed[key].spans[-1].end
    assert (read["eager"] < 40, read["cooperative"] > 55) == (True, True), "two a second, and the rebalance is at 15 s"


def test_cooperative_members_hand_over_in_a_second_rebalance(it: Any) -> None:
    """KIP-429: the owner gives up in the first generation, the newcomer gets it in the second."""
    world(it)
    first = it.member("g", "t", **COOPERATIVE)
    it.run(10_000)
    assert first.membership.generation == 1
    second = it.member("g", "t", node=2_001, **COOPERATIVE)
    seen: list[tuple[int, list[list[int]]]] = []
    while it.cluster.now < 20_000:
        it.run(it.cluster.now + 5)
        step = (second.membership.generation, owned(first, second))
        if not seen or seen[-1] != step:
            seen.append(step)
    generations = [generation for generation, _ in seen if generation > 0]
    assert (min(generations), max(generations)) == (2, 3)
    assert (2, [[0, 1], []]) in seen
    assert seen[-1] == (3, [[0, 1], [2, 3]])


@PROTOCOLS
def test_a_member_that_was_away_too_long_is_fenced_and_joins_anew(it: Any, protocol: dict[str, Any]) -> None:
    """A zombie: what it read meanwhile it may not commit."""
    world(it)
    watch = GroupWatch(it.cluster)
    members = [it.member("g", "t", node=2_000 + number, **protocol) for number in range(2)]
    it.run(15_000)
    for broker in (1, 2, 3):
        it.hold(members[1].node, broker)
    it.run(75_000)
    assert owned(members[0]) == [[0, 1, 2, 3]]
    for broker in (1, 2, 3):
        it.release(members[1].node, broker)
    while it.cluster.now < 100_000:
        it.run(it.cluster.now + 200)
        watch.check()
    assert fairly(members)


# ------------------------------------------------------------------ what is committed


@PROTOCOLS
def test_statement_25_a_commit_is_replicated_and_read_by_whoever_takes_over(it: Any, protocol: dict[str, Any]) -> None:
    """The coordinator dies; the next leader of the partition has read everything, the members stay what they are."""
    keys = world(it)
    member = it.member("g", "t", **protocol)
    it.run(20_000)
    before = {key: it.committed for key, it in zip(keys, view(it).values(), strict=True)}
    generation = member.membership.generation
    it.cluster.kill(1)
    it.run(40_000)
    assert it.state(it.key(CONSUMER_OFFSETS)).leader == 2
    assert (owned(member), member.membership.generation) == ([[0, 1, 2, 3]], generation)
    for key, each in zip(keys, view(it).values(), strict=True):
        assert (each.state, each.member is None) == (GroupState.STABLE, False)
        assert each.committed is not None
        assert before[key] is not None
        assert each.committed > before[key]
        assert each.committed <= (each.high_watermark or 0)


def test_statement_25_the_coordinator_is_who_leads_the_groups_partition(it: Any) -> None:
    world(it, offsets=((1, 2, 3), (2, 3, 1), (3, 1, 2)))
    for number, group in enumerate(("orders-consumer", "console-consumer-1", "payments")):
        it.member(group, "t", node=2_000 + number, **CONSUMER)
    it.run(5_000)
    for broker in it.cluster.brokers.values():
        for loaded in broker.apis.groups.log.loaded():
            led = it.state(loaded.partition.key).leader
            assert broker.broker == led
            assert all(partition_for(name, 3) == loaded.partition.key.partition for name in loaded.groups)
    names = [
        name for it in it.cluster.brokers.values() for loaded in it.apis.groups.log.loaded() for name in loaded.groups
    ]
    assert sorted(names) == ["console-consumer-1", "orders-consumer", "payments"]


@PROTOCOLS
def test_a_compacted_partition_tells_the_next_coordinator_the_same(lab: Any, protocol: dict[str, Any]) -> None:
    it = lab(log_retention_check_interval_ms=1_000)
    it.topic(CONSUMER_OFFSETS, [(1, 2, 3)], cleanup_policy="compact", segment_ms=5_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 500)
    member = it.member("g", "t", **protocol, auto_commit_interval_ms=500)
    it.run(60_000)
    log = it.cluster.disks[2].replicas[it.key(CONSUMER_OFFSETS)].log
    assert sum(len(batch.keys) for batch in log.batches) < log.end - 30, "it was compacted"
    it.cluster.kill(member.node)
    it.cluster.kill(1)
    it.run(90_000)
    (there,) = view(it).values()
    assert there.committed == member.committing.committed[key].offset
    assert there.member == member.membership.member_id


def test_with_zookeeper_groups_are_the_same(lab: Any) -> None:
    """Before 4.0 the brokers had no consumer protocol, but the coordinator was found, and replaced, in the same way."""
    it = lab(preset="zk-3.x")
    keys = world(it, 2)
    member = it.member("g", "t", **EAGER)
    it.run(10_000)
    it.cluster.kill(1)
    it.run(60_000)
    assert owned(member) == [[0, 1]]
    assert [each.committed >= 70 for each in view(it).values()] == [True] * len(keys)


def commit(it: Any, member: Any, until: int) -> list[Error]:
    """Commit at ``until``, and give what the application was told within a second."""
    told: list[Error] = []
    it.run(until)
    member.commit(it.cluster.now, lambda _now, error: told.append(error))
    it.cluster.flush(member.node)
    it.run(until + 1_000)
    return told


def test_a_commit_is_refused_while_the_isr_is_below_the_minimum(it: Any) -> None:
    it.topic(CONSUMER_OFFSETS, [(1, 2, 3)], min_isr=2)
    (key,) = it.topic("t", [(1, 2, 3)])
    member = it.member("g", "t", auto_commit_interval_ms=None, **CONSUMER)
    it.write(key, 5)
    it.run(5_000)
    it.cluster.kill(2)
    it.cluster.kill(3)
    it.run(20_000)
    assert commit(it, member, 21_000) == [Error.COORDINATOR_NOT_AVAILABLE]
    assert view(it)[0].committed is None
    it.start(2)
    it.run(30_000)
    assert commit(it, member, 31_000) == [Error.NONE]
    assert view(it)[0].committed == 5


def test_n20_after_an_unclean_election_a_committed_offset_lies_beyond_the_log(lab: Any) -> None:
    """N20: without the validation of KIP-320 the next reader is out of range, and starts over."""
    switches = lab().constants.switches
    it = lab(eligible_leader_replicas=False, switches=type(switches)(epoch_fencing=False))
    it.topic(CONSUMER_OFFSETS, [(3,)])
    (key,) = it.topic("t", [(1, 2)], unclean=True)
    member = it.member("g", "t", **CONSUMER)
    it.write(key, 10)
    it.run(5_000)
    it.cluster.kill(2)
    it.run(20_000)
    it.write(key, 5)
    it.run(30_000)
    it.cluster.kill(member.node)
    it.cluster.kill(1)
    it.start(2)
    it.run(50_000)
    (there,) = view(it).values()
    assert (there.committed, there.high_watermark) == (15, 10)
    heir = it.member("g", "t", node=2_001, **CONSUMER)
    it.run(100_000)
    assert heir.consumed[key].spans == [Span(0, 0, 10)]
    assert heir.positions[key].error is Error.OFFSET_OUT_OF_RANGE


def test_commits_without_a_membership_are_taken_while_the_group_is_empty(it: Any) -> None:
    world(it)
    member = it.member("g", "t", **CONSUMER)
    it.run(5_000)
    stranger = it.member("g", "t", node=2_001, **CONSUMER)
    stranger.membership.poll = lambda _now: None  # it only commits
    stranger.membership.member_id = ""
    stranger.fetching.seek(it.key("t"), 3)
    stranger.membership.owned = frozenset({it.key("t")})
    assert commit(it, stranger, 6_000) == [Error.UNKNOWN_MEMBER_ID]
    member.close()
    it.cluster.flush(member.node)
    it.run(20_000)
    stranger.fetching.seek(it.key("t"), 3)
    stranger.membership.owned = frozenset({it.key("t")})
    assert commit(it, stranger, 21_000) == [Error.NONE]


def test_offsets_of_an_empty_group_expire_a_week_after_its_end(lab: Any) -> None:
    """Looked at each ten minutes; then nothing is left of the group. Times are a thousandth here."""
    it = lab(offsets_retention_ms=604_800, offsets_retention_check_interval_ms=600)
    it.topic(CONSUMER_OFFSETS, [(1, 2, 3)])
    (key,) = it.topic("t", [(1, 2, 3)])
    it.write(key, 5)
    member = it.member("g", "t", **EAGER)
    it.run(300_000)
    assert view(it)[0].committed == 5, "never, while somebody reads it"
    member.close()
    it.cluster.flush(member.node)
    it.run(900_000)
    assert (view(it)[0].committed, view(it)[0].state) == (5, GroupState.EMPTY)
    it.run(906_500)
    assert view(it) == {}
    assert [loaded.groups for loaded in it.cluster.brokers[1].apis.groups.log.loaded()] == [{}]


@PROTOCOLS
def test_a_new_group_begins_where_the_policy_says_and_an_old_one_where_it_stopped(
    it: Any, protocol: dict[str, Any]
) -> None:
    it.topic(CONSUMER_OFFSETS, [(1, 2, 3)])
    (key,) = it.topic("t", [(1, 2, 3)])
    it.write(key, 5)
    member = it.member("g", "t", **protocol, reset=ResetPolicy.LATEST)
    it.run(10_000)
    it.write(key, 5)
    it.run(20_000)
    assert member.consumed[key].spans == [Span(0, 5, 10)]
    member.close()
    it.cluster.flush(member.node)
    it.run(22_000)
    it.write(key, 5)
    heir = it.member("g", "t", node=2_001, **protocol, reset=ResetPolicy.LATEST)
    it.run(40_000)
    assert heir.consumed[key].spans == [Span(0, 10, 15)]
