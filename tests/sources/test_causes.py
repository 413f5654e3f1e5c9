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


FENCED, UNFENCED, REGISTERED = registration(3, fenced=1), registration(3, fenced=-1), registered(3, epoch=2)
STOPPING = replace(registered(3), fenced=False, in_controlled_shutdown=True)
PAIRS = tuple(partition(number, isr=(1, other), replicas=(1, other)) for number, other in enumerate((2, 3, 4)))
MANY = partition(isr=(1, 2, 3, 4), replicas=(1, 2, 3, 4))
LED_BY_3, TWO = partition(leader=3), (partition(0), partition(1, leader=3))
WITHOUT_ELR, WITH_ELR = (FeatureLevel(feature=ELR_VERSION, level=level) for level in (0, 1))
LEADER_STALL, UNCLEAN_OR_NOT = ambiguous(Cause.LEADER_STALL, Cause.LAG), ambiguous(Cause.UNCLEAN_RESTART, Cause.RESTART)
UNKNOWN: Why = (Cause.UNKNOWN, Evidence.AMBIGUOUS, ())
DEPARTED = ambiguous(Cause.FENCED, Cause.DIR_FAILURE, Cause.UNCLEAN_RESTART, Cause.RESTART)
BACK = ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)
UNREGISTERED = UnregisterBroker(broker=BrokerId(3), broker_epoch=BrokerEpoch(1))
# By rule: the partitions that are there (none: one whose leader is 1), the batches, and the causes of their changes.
RULES: dict[str, tuple[tuple[Partition, ...], list[tuple[MetadataRecord, ...]], list[Why]]] = {
    "a leader that drops several healthy brokers from partitions of two replicas may have stalled":
        (PAIRS, [tuple(change(number, isr=(1,)) for number in range(3))], [LEADER_STALL] * 3),
    "the removals of each leader are judged apart":
        ((PAIRS[0], partition(1, leader=2)), [(change(0, isr=(1,)), change(1, isr=(1, 2)))], [LAST_FOLLOWER, LAG]),
    "a leader that drops several brokers and keeps a follower more likely sees them lag":
        ((MANY,), [(change(isr=(1, 4)),)], [LAST_FOLLOWER]),
    "changes right before lost directories are a directory failure":
        ((), [(change(isr=(1, 2)), registration(3, log_dirs=("a",)))], proven(Cause.DIR_FAILURE)),
    "changes right before a new registration are a restart":
        ((), [(WITHOUT_ELR,), (change(isr=(1, 2)), REGISTERED)], proven(Cause.RESTART)),
    "a restart that neither costs nor shows eligibility may be unclean, where nothing is known of it":
        ((), [(change(isr=(1, 2)), REGISTERED)], [UNCLEAN_OR_NOT]),
    "a restart that neither costs nor shows eligibility may be unclean, where there is such a thing":
        ((), [(WITH_ELR,), (change(isr=(1, 2)), REGISTERED)], [UNCLEAN_OR_NOT]),
    "a restart after which the broker is eligible is clean":
        ((partition(isr=(1, 3)),), [(change(isr=(1,), elr=(3,)), REGISTERED)], proven(Cause.RESTART)),
    "a restart of the last member of an ISR that does not become eligible is unclean":
        ((partition(isr=(3,), leader=3),), [(change(isr=(), leader=-1), REGISTERED)], proven(Cause.UNCLEAN_RESTART)),
    "a restart that costs eligibility anywhere is unclean everywhere": (
        (partition(0), partition(1)),
        [(change(0, isr=(1,), elr=(2, 3)),), (change(0, elr=(2,)), change(1, isr=(1, 2)), REGISTERED)],
        [LEADER_STALL, *proven(Cause.UNCLEAN_RESTART, Cause.UNCLEAN_RESTART)],
    ),
    # With it the ISR has its minimum again, so nobody is eligible any more, the broker that restarts among them.
    "a follower that joins right before a new registration has caught up": (
        (partition(isr=(2,)),), [(change(isr=(2,), elr=(3,)),), (change(isr=(2, 1), elr=()), REGISTERED)],
        [UNKNOWN, *proven(Cause.EXPAND)],
    ),
    "a broker that runs and registers again, as for another listener, has not restarted":
        ((), [(change(isr=(1, 2)), registered(3))], [LAG]),
    "and it goes on to shut down": (
        (), [(registration(3, shutdown=1), STOPPING, change(isr=(1, 2)))], proven(Cause.CONTROLLED_SHUTDOWN),
    ),
    "changes right before an unregistration are reported so":
        ((), [(change(isr=(1, 2)), UNREGISTERED)], proven(Cause.UNREGISTERED)),
    "without ELR the last member stays in the ISR when its broker is fenced and leads again when unfenced":
        ((ALONE,), [(change(leader=-1), FENCED), (UNFENCED, change(leader=3))], proven(Cause.FENCED, Cause.UNFENCED)),
    "a leader that returns apart from any unfencing may have been elected by an administrator":
        ((ALONE,), [(change(leader=-1), FENCED), (change(leader=3),)], [*proven(Cause.FENCED), BACK]),
    "an election beyond the run of an unfencing is not its work": (
        (ALONE, partition(1)),
        [(change(leader=-1), FENCED), (UNFENCED, change(1, isr=(1, 2)), change(leader=3))],
        [*proven(Cause.FENCED), LAG, BACK],
    ),
    "a lag shrink of another broker does not join the run of a fencing":
        (TWO, [(change(0, isr=(1, 3)), change(1, isr=(1, 2), leader=1), FENCED)], [LAG, *proven(Cause.FENCED)]),
    "a shrink with a new epoch of the same leader may be of an old version or of ZooKeeper":
        ((), [(change(isr=(1, 3), leader=1),)], [ambiguous(Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)]),
    "a preferred election right before a fencing of the old leader stays one":
        ((LED_BY_3,), [(change(leader=1), FENCED)], proven(Cause.PREFERRED_ELECTION)),
    "a fencing while the broker shuts down is part of the shutdown":
        ((), [(registration(3, shutdown=1),), (change(isr=(1, 2)), FENCED)], proven(Cause.CONTROLLED_SHUTDOWN)),
    "a controlled shutdown may go on in later batches and ends with the next registration": (
        (),
        [
            (registration(3, shutdown=1),), (change(isr=(1, 2)),), (REGISTERED,),
            (change(isr=(1, 2, 3)),), (change(isr=(1, 2)),),
        ],
        [*proven(Cause.CONTROLLED_SHUTDOWN, Cause.EXPAND), LAG],
    ),
    "a departure whose registration record is in a later batch names its candidates":
        (TWO, [(change(0, isr=(1, 2)), change(1, isr=(1, 2), leader=1))], [DEPARTED, DEPARTED]),
    "a departure behind a change of other brokers is one, too": (
        (partition(0, isr=(1, 2)), partition(1, leader=3)),
        [(change(0, isr=(1, 2, 3)), change(1, isr=(1, 2), leader=1))],
        [*proven(Cause.EXPAND), DEPARTED],
    ),
    "the same holds where the last member stays in the ISR": ((ALONE,), [(change(leader=-1),)], [DEPARTED]),
    "a reassignment that replaces the leader is no departure":
        ((LED_BY_3,), [(change(isr=(1, 2), leader=1, replicas=(1, 2)),)], proven(Cause.REASSIGNMENT)),
    "a reassignment that ends beside a fencing may have been ended by it": (
        (LED_BY_3,), [(change(isr=(1, 2), leader=1, replicas=(1, 2)), FENCED)],
        [ambiguous(Cause.REASSIGNMENT, Cause.FENCED)],
    ),
    "an unclean election outranks the fencing that set it off": (
        (partition(isr=(3,), leader=3),), [(change(isr=(2,), leader=2, recovery=1), FENCED)],
        proven(Cause.UNCLEAN_ELECTION),
    ),
    "a change of neither ISR nor leader has no cause": ((), [(change(recovery=0),)], [(None, None, ())]),
    "what no rule knows is unknown":
        ((), [(change(isr=(1, 2)),), (change(isr=(1, 3)),)], [LAG, UNKNOWN]),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_real_clusters_did_not_show(rule: str) -> None:
    there, batches, expected = RULES[rule]
    assert expected == causes(*batches, given=there)


def test_two_fencings_in_one_batch_keep_apart() -> None:
    two = (partition(0, leader=2), partition(1, leader=3))
    of_2 = (change(0, isr=(1, 3), leader=1), change(1, isr=(1, 3)), registration(2, fenced=1))
    of_3 = (change(0, isr=(1,)), change(1, isr=(1,), leader=1), FENCED)
    found = causes((*of_2, *of_3), given=two)
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


def permitted(kind: int, name: str) -> Config:
    return Config(resource_type=kind, resource_name=name, key="unclean.leader.election.enable", value="true")


DOUBT = ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)


@pytest.mark.parametrize(
    ("permission", "unfencing", "expected"),
    [
        ((), (UNFENCED,), proven(Cause.LAST_KNOWN_LEADER)),
        ((), (), [DOUBT]),
        ((permitted(2, "orders"),), (UNFENCED,), [DOUBT]),
        ((permitted(4, ""),), (UNFENCED,), [DOUBT]),
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
