"""Causes, against what was done to real clusters, and against record sequences that they did not produce."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, ClusterId, Micros, Offset, TopicId
from streaming.contracts.observations import PartitionObserved
from streaming.contracts.records import (
    ELR_VERSION,
    BrokerRegistrationChange,
    Config,
    FeatureLevel,
    MetadataRecord,
    Partition,
    PartitionChange,
    RecordBatch,
    RegisterBroker,
    Topic,
    UnregisterBroker,
)
from streaming.sources.metadata_log.image import ClusterImage
from tests.blocks import singly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    RecordedLog = Callable[[str], list[RecordBatch]]

TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")

Why = tuple[Cause | None, Evidence | None, tuple[Cause, ...]]


def proven(*names: Cause) -> list[Why]:
    return [(name, Evidence.PROVEN, ()) for name in names]


def ambiguous(*names: Cause) -> Why:
    return names[0], Evidence.AMBIGUOUS, names


LAG: Why = (Cause.LAG, Evidence.INFERRED, ())  # a removal by a leader that kept another follower
LAST_FOLLOWER = ambiguous(Cause.LAG, Cause.LEADER_STALL)
ONE, LINKS = "one_controller", "replication_links"
# What was done to the cluster, and the offsets of the changes that followed.
PROVEN = [
    (ONE, "the same", Cause.FENCED, (65,)),
    (ONE, "restart after the crash", Cause.EXPAND, (87, 88, 89, 90)),
    (ONE, "preferred leader election", Cause.PREFERRED_ELECTION, (93, 125, 126, 182, 220)),
    (ONE, "SIGTERM of broker 2, which leads", Cause.CONTROLLED_SHUTDOWN, (98, 99, 100, 101)),
    (ONE, "the same", Cause.FENCED, (165,)),
    (ONE, "SIGCONT", Cause.EXPAND, (174, 175, 176, 177)),
    (ONE, "kill -9 and restart at once: expanded by the old registration", Cause.EXPAND, (197, 198, 199)),
    (ONE, "the same, then the session ends", Cause.FENCED, (202, 203, 204, 205)),
    (ONE, "reassignment and back", Cause.REASSIGNMENT, (222, 224, 299, 300)),
    (ONE, "another replica order", Cause.REASSIGNMENT, (228, 230)),
    (ONE, "kill -9 of 3, then of 2: leaderless", Cause.FENCED, (321, 338, 339)),
    (ONE, "unclean election by an administrator", Cause.UNCLEAN_ELECTION, (358,)),
    (ONE, "unclean election by topic configuration", Cause.UNCLEAN_ELECTION, (440,)),
    (ONE, "the unclean leader has recovered", Cause.EXPAND, (387, 467)),
    (ONE, "clean stop of all", Cause.CONTROLLED_SHUTDOWN, (*range(474, 478), *range(483, 487), 492)),
    (ONE, "an eligible leader replica returns first", Cause.ELR_ELECTION, (510, 511, 512, 513)),
    (LINKS, "unclean restart of eligible broker 2", Cause.UNCLEAN_RESTART, (130, 131, 132, 133)),
    (LINKS, "the last leader returns after an unclean restart", Cause.LAST_KNOWN_LEADER, (137,)),
    (LINKS, "one more partition", Cause.CREATED, (190,)),
    ("controller_failover", "a topic of three partitions", Cause.CREATED, (31, 32, 33)),
]
DOUBTFUL: list[tuple[str, str, Why, tuple[int, ...]]] = [
    (ONE, "kill -9 of broker 3: lag first, its leadership at the session's end", LAG, (56, 58)),
    (ONE, "the same where it was the last follower", LAST_FOLLOWER, (55,)),
    (ONE, "SIGSTOP for 5 s", LAG, (134, 136)),
    (ONE, "the same where it was the last follower", LAST_FOLLOWER, (133,)),
    (ONE, "SIGSTOP for 9 s", LAG, (155, 159)),
    (ONE, "the same where it was the last follower", LAST_FOLLOWER, (157,)),
    (ONE, "a leader was frozen and drops all its followers", ambiguous(Cause.LEADER_STALL, Cause.LAG), (143,)),
    (LINKS, "the link 1 to 3 is held", LAG, (42,)),
    (LINKS, "the link 1 to 3 is slow", LAG, (56,)),
    (LINKS, "both links of leader 1 are cut, one after the other", LAG, (81,)),
    (LINKS, "the second of them, to the last follower", LAST_FOLLOWER, (84,)),
    (
        LINKS, "a clean stop of a broker that leads nothing may be a session expiry",
        ambiguous(Cause.FENCED, Cause.CONTROLLED_SHUTDOWN), (163, 164, 165, 166),
    ),
]  # fmt: skip


def image() -> ClusterImage:
    return ClusterImage(cluster_id=ClusterId("C"), cluster="test", source="metadata_log:test")


def replay(batches: Iterable[RecordBatch]) -> dict[int, PartitionObserved]:
    """Replay a log; the partition observations by offset."""
    cluster = image()
    observed = [item for batch in batches for item in singly(cluster.apply(batch, Micros(0)))]
    return {item.metadata_offset: item for item in observed if isinstance(item, PartitionObserved)}  # type: ignore[misc]


def why(observation: PartitionObserved) -> Why:
    return observation.cause, observation.evidence, observation.candidates


@pytest.mark.parametrize(
    ("log", "done", "expected", "offsets"),
    [*((log, done, *proven(cause), offsets) for log, done, cause, offsets in PROVEN), *DOUBTFUL],
)
def test_what_was_done_to_a_real_cluster_is_the_proven_cause_and_lag_is_never_proven(
    recorded_log: RecordedLog, log: str, done: str, expected: Why, offsets: tuple[int, ...]
) -> None:
    observed = replay(recorded_log(log))
    assert dict.fromkeys(offsets, expected) == {offset: why(observed[offset]) for offset in offsets}, done


def test_a_leader_that_drops_several_healthy_brokers_from_partitions_of_two_replicas_may_have_stalled() -> None:
    pairs = [partition(number, isr=(1, other), replicas=(1, other)) for number, other in enumerate((2, 3, 4))]
    batch = tuple(change(number, isr=(1,)) for number in range(3))
    assert [ambiguous(Cause.LEADER_STALL, Cause.LAG)] * 3 == causes(batch, given=tuple(pairs))


def test_the_removals_of_each_leader_are_judged_apart() -> None:
    two = (partition(0, isr=(1, 3), replicas=(1, 3)), partition(1, leader=2))
    batch = (change(0, isr=(1,)), change(1, isr=(1, 2)))
    assert [ambiguous(Cause.LAG, Cause.LEADER_STALL), LAG] == causes(batch, given=two)


def test_a_leader_that_drops_several_brokers_and_keeps_a_follower_more_likely_sees_them_lag() -> None:
    many = partition(0, isr=(1, 2, 3, 4), replicas=(1, 2, 3, 4))
    assert [ambiguous(Cause.LAG, Cause.LEADER_STALL)] == causes((change(0, isr=(1, 4)),), given=(many,))


@given(st.data())
def test_records_of_operations_in_one_batch_keep_their_causes(recorded_log: RecordedLog, data: st.DataObject) -> None:
    """The controller may join neighbouring operations. A lag shrink right before a fencing drowns in its run."""
    batches = recorded_log("one_controller")
    apart = replay(batches)
    joined = replay(_joined(batches, data.draw(st.sets(st.integers(0, len(batches) - 1), max_size=200))))
    assert apart.keys() == joined.keys()
    for offset, observation in apart.items():
        now = joined[offset]
        by_leader = {Cause.LAG, Cause.LEADER_STALL}  # judged by all that the leader removed in the batch
        if observation.cause in by_leader:
            assert now.cause in {*by_leader, Cause.FENCED}
        else:
            assert why(observation) == why(now)


def _joined(batches: list[RecordBatch], seams: set[int]) -> list[RecordBatch]:
    """Join each batch whose index is a seam with the one before it."""
    result: list[RecordBatch] = []
    for index, batch in enumerate(batches):
        if result and index in seams:
            result[-1] = replace(result[-1], records=(*result[-1].records, *batch.records))
        else:
            result.append(batch)
    return result


def partition(
    number: int = 0, *, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)
) -> Partition:
    members: Any = {"replicas": replicas, "isr": isr, "leader": leader}
    return Partition(topic_id=TOPIC, partition=number, leader_epoch=0, partition_epoch=0, **members)


def change(number: int = 0, *, recovery: int | None = None, **fields: Any) -> PartitionChange:
    return PartitionChange(topic_id=TOPIC, partition=number, leader_recovery_state=recovery, **fields)


def registered(broker: int, *, epoch: int = 1) -> RegisterBroker:
    ids = {"broker": BrokerId(broker), "broker_epoch": BrokerEpoch(epoch)}
    return RegisterBroker(**ids, incarnation_id=f"{broker}-{epoch}", log_dirs=("a", "b"))


def registration(
    broker: int, *, fenced: int = 0, shutdown: int = 0, log_dirs: tuple[str, ...] | None = None
) -> BrokerRegistrationChange:
    fields: Any = {"fenced": fenced, "in_controlled_shutdown": shutdown, "log_dirs": log_dirs}
    return BrokerRegistrationChange(broker=BrokerId(broker), broker_epoch=BrokerEpoch(1), **fields)


def causes(*batches: tuple[MetadataRecord, ...], given: tuple[Partition, ...] = ()) -> list[object]:
    """Apply batches to a cluster of three running brokers; the causes of their partition changes in order."""
    start: tuple[MetadataRecord, ...] = (
        *(registered(broker) for broker in (1, 2, 3)),
        *(registration(broker, fenced=-1) for broker in (1, 2, 3)),
        Topic(topic="orders", topic_id=TOPIC),
        *(given or (partition(),)),
    )
    cluster, offset = image(), 0
    found: list[object] = []
    for number, records in enumerate((start, *batches)):
        batch = RecordBatch(base_offset=Offset(offset), epoch=1, timestamp=Micros(number), records=records)
        offset += len(records)
        observed = list(singly(cluster.apply(batch, Micros(0))))
        if number:
            found += [why(item) for item in observed if isinstance(item, PartitionObserved)]
    assert cluster.undecodable == []
    return found


ALONE = partition(isr=(3,), leader=3, replicas=(3,))


def test_changes_right_before_lost_directories_are_a_directory_failure() -> None:
    batch = (change(isr=(1, 2)), registration(3, log_dirs=("a",)))
    assert proven(Cause.DIR_FAILURE) == causes(batch)


WITHOUT_ELR = FeatureLevel(feature=ELR_VERSION, level=0)


def test_changes_right_before_a_new_registration_are_a_restart() -> None:
    assert proven(Cause.RESTART) == causes((WITHOUT_ELR,), (change(isr=(1, 2)), registered(3, epoch=2)))


@pytest.mark.parametrize("known", [(), (FeatureLevel(feature=ELR_VERSION, level=1),)])
def test_a_restart_that_neither_costs_nor_shows_eligibility_may_be_unclean(known: tuple[FeatureLevel, ...]) -> None:
    expected = [ambiguous(Cause.UNCLEAN_RESTART, Cause.RESTART)]
    assert expected == causes(known, (change(isr=(1, 2)), registered(3, epoch=2)))


def test_a_restart_after_which_the_broker_is_eligible_is_clean() -> None:
    batch = (change(0, isr=(1,), elr=(3,)), registered(3, epoch=2))
    assert proven(Cause.RESTART) == causes(batch, given=(partition(0, isr=(1, 3)),))


def test_a_restart_of_the_last_member_of_an_isr_that_does_not_become_eligible_is_unclean() -> None:
    batch = (change(0, isr=(), leader=-1), registered(3, epoch=2))
    assert proven(Cause.UNCLEAN_RESTART) == causes(batch, given=(partition(0, isr=(3,), leader=3),))


def test_a_restart_that_costs_eligibility_anywhere_is_unclean_everywhere() -> None:
    two = (partition(0), partition(1))
    shrunk = (change(0, isr=(1,), elr=(2, 3)),)
    batch = (change(0, elr=(2,)), change(1, isr=(1, 2)), registered(3, epoch=2))
    expected = [ambiguous(Cause.LEADER_STALL, Cause.LAG), *proven(Cause.UNCLEAN_RESTART, Cause.UNCLEAN_RESTART)]
    assert expected == causes(shrunk, batch, given=two)


def test_a_follower_that_joins_right_before_a_new_registration_has_caught_up() -> None:
    """With it the ISR has its minimum again, so nobody is eligible any more, the broker that restarts among them."""
    given = (partition(0, isr=(2,)),)
    shrunk = (change(0, isr=(2,), elr=(3,)),)
    batch = (change(0, isr=(2, 1), elr=()), registered(3, epoch=2))
    assert causes(shrunk, batch, given=given)[-1] == (Cause.EXPAND, Evidence.PROVEN, ())


def test_changes_right_before_an_unregistration_are_reported_so() -> None:
    batch = (change(isr=(1, 2)), UnregisterBroker(broker=BrokerId(3), broker_epoch=BrokerEpoch(1)))
    assert proven(Cause.UNREGISTERED) == causes(batch)


def test_without_elr_the_last_member_stays_in_the_isr_when_its_broker_is_fenced_and_leads_again_when_unfenced() -> None:
    fenced = (change(leader=-1), registration(3, fenced=1))
    unfenced = (registration(3, fenced=-1), change(leader=3))
    assert proven(Cause.FENCED, Cause.UNFENCED) == causes(fenced, unfenced, given=(ALONE,))


def test_a_leader_that_returns_apart_from_any_unfencing_may_have_been_elected_by_an_administrator() -> None:
    fenced = (change(leader=-1), registration(3, fenced=1))
    expected = [*proven(Cause.FENCED), ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)]
    assert expected == causes(fenced, (change(leader=3),), given=(ALONE,))


def test_an_election_beyond_the_run_of_an_unfencing_is_not_its_work() -> None:
    two = (partition(0, isr=(3,), leader=3, replicas=(3,)), partition(1))
    fenced = (change(0, leader=-1), registration(3, fenced=1))
    batch = (registration(3, fenced=-1), change(1, isr=(1, 2)), change(0, leader=3))
    expected = [*proven(Cause.FENCED), LAG, ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)]
    assert expected == causes(fenced, batch, given=two)


def test_a_lag_shrink_of_another_broker_does_not_join_the_run_of_a_fencing() -> None:
    two = (partition(0), partition(1, leader=3))
    batch = (change(0, isr=(1, 3)), change(1, isr=(1, 2), leader=1), registration(3, fenced=1))
    assert [LAG, *proven(Cause.FENCED)] == causes(batch, given=two)


def test_a_shrink_with_a_new_epoch_of_the_same_leader_may_be_of_an_old_version_or_of_zookeeper() -> None:
    assert [ambiguous(Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)] == causes((change(isr=(1, 3), leader=1),))


def test_two_fencings_in_one_batch_keep_apart() -> None:
    two = (partition(0, leader=2), partition(1, leader=3))
    batch = (
        change(0, isr=(1, 3), leader=1),
        change(1, isr=(1, 3)),
        registration(2, fenced=1),
        change(0, isr=(1,)),
        change(1, isr=(1,), leader=1),
        registration(3, fenced=1),
    )
    found = causes(batch, given=two)
    # Leader 1 may have removed broker 3 from its own partition for lag directly before; it cannot take leaderships.
    doubtful = ambiguous(Cause.FENCED, Cause.LAG)
    assert found == [*proven(Cause.FENCED, Cause.FENCED), doubtful, *proven(Cause.FENCED)]


@pytest.mark.parametrize(
    ("leaders", "doubtful"),
    [
        ((1, 1, 1), 3),  # one AlterPartition, or the fencing
        ((1, 1, 2), 3),  # of two leaders
        ((1, 2, 1), 2),  # a leader has one under way at a time, whose changes are adjacent
        ((1, 3, 1), 1),  # nobody but the controller takes the leadership away
        ((3, 1, 1), 0),
    ],
)
def test_what_stands_before_a_fencing_may_be_lag_unless_the_controller_wrote_it(
    leaders: tuple[int, ...], doubtful: int
) -> None:
    """Both operations may be in one batch (``controller.quorum.append.linger.ms``)."""
    given = tuple(partition(number, leader=leader) for number, leader in enumerate(leaders))
    changes = [change(n, isr=(1, 2), leader=1 if leader == 3 else None) for n, leader in enumerate(leaders)]
    batch = (*changes, change(9, isr=(1, 2), leader=1), registration(3, fenced=1))

    found = causes(batch, given=(*given, partition(9, leader=3)))

    doubt = ambiguous(Cause.FENCED, Cause.LAG)
    assert found == [doubt] * doubtful + proven(*[Cause.FENCED] * (4 - doubtful))


def test_a_preferred_election_right_before_a_fencing_of_the_old_leader_stays_one() -> None:
    batch = (change(leader=1), registration(3, fenced=1))
    assert proven(Cause.PREFERRED_ELECTION) == causes(batch, given=(partition(leader=3),))


def test_a_fencing_while_the_broker_shuts_down_is_part_of_the_shutdown() -> None:
    batches = (registration(3, shutdown=1),), (change(isr=(1, 2)), registration(3, fenced=1))
    assert proven(Cause.CONTROLLED_SHUTDOWN) == causes(*batches)


def test_a_controlled_shutdown_may_go_on_in_later_batches_and_ends_with_the_next_registration() -> None:
    batches = ((registration(3, shutdown=1),), (change(isr=(1, 2)),), (registered(3, epoch=2),))
    back = ((change(isr=(1, 2, 3)),), (change(isr=(1, 2)),))
    assert [*proven(Cause.CONTROLLED_SHUTDOWN, Cause.EXPAND), LAG] == causes(*batches, *back)


def test_a_departure_whose_registration_record_is_in_a_later_batch_names_its_candidates() -> None:
    two = (partition(0), partition(1, leader=3))
    batch = (change(0, isr=(1, 2)), change(1, isr=(1, 2), leader=1))
    expected = ambiguous(Cause.FENCED, Cause.DIR_FAILURE, Cause.UNCLEAN_RESTART, Cause.RESTART)
    assert [expected, expected] == causes(batch, given=two)
    assert [expected] == causes((change(leader=-1),), given=(ALONE,)), "also where the last member stays in the ISR"


def test_a_reassignment_that_replaces_the_leader_is_no_departure() -> None:
    batch = (change(isr=(1, 2), leader=1, replicas=(1, 2)),)
    assert proven(Cause.REASSIGNMENT) == causes(batch, given=(partition(leader=3),))


def test_a_reassignment_that_ends_beside_a_fencing_may_have_been_ended_by_it() -> None:
    batch = (change(isr=(1, 2), leader=1, replicas=(1, 2)), registration(3, fenced=1))
    assert [ambiguous(Cause.REASSIGNMENT, Cause.FENCED)] == causes(batch, given=(partition(leader=3),))


def test_an_unclean_election_outranks_the_fencing_that_set_it_off() -> None:
    batch = (change(isr=(2,), leader=2, recovery=1), registration(3, fenced=1))
    assert proven(Cause.UNCLEAN_ELECTION) == causes(batch, given=(partition(isr=(3,), leader=3),))


def permitted(kind: int, name: str) -> Config:
    return Config(resource_type=kind, resource_name=name, key="unclean.leader.election.enable", value="true")


DOUBT = ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)


@pytest.mark.parametrize(
    ("permission", "unfencing", "expected"),
    [
        ((), (registration(3, fenced=-1),), proven(Cause.LAST_KNOWN_LEADER)),
        ((), (), [DOUBT]),
        ((permitted(2, "orders"),), (registration(3, fenced=-1),), [DOUBT]),
        ((permitted(4, ""),), (registration(3, fenced=-1),), [DOUBT]),
    ],
)
def test_the_last_known_leader_is_proven_only_where_nobody_permitted_or_ordered_an_unclean_election(
    permission: tuple[MetadataRecord, ...], unfencing: tuple[MetadataRecord, ...], expected: list[object]
) -> None:
    lost = (change(isr=(), leader=-1, elr=(3,), last_known_elr=(3,)), registration(3, fenced=1))
    struck = (change(elr=()), registered(3, epoch=2))
    elected = (*unfencing, change(isr=(3,), leader=3, recovery=1, last_known_elr=()))
    before = proven(Cause.FENCED, Cause.UNCLEAN_RESTART)
    assert before + expected == causes((*permission, *lost), struck, elected, given=(ALONE,))


def test_a_change_of_neither_isr_nor_leader_has_no_cause() -> None:
    assert causes((change(recovery=0),)) == [(None, None, ())]


def test_what_no_rule_knows_is_unknown() -> None:
    expected = [LAG, (Cause.UNKNOWN, Evidence.AMBIGUOUS, ())]
    assert expected == causes((change(isr=(1, 2)),), (change(isr=(1, 3)),))
