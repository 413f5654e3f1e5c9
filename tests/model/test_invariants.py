"""The invariants can fail: each is shown a cluster that keeps it, then the same with one thing broken by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.contracts.events import Cause
from streaming.model.broker.leader import IsrProposal
from streaming.model.invariants import metadata
from streaming.model.invariants.ghost import look
from streaming.model.invariants.watch import INVARIANTS, OTHERS, Violation
from streaming.model.messages.clients import Acks
from streaming.model.messages.registrations import Transition
from streaming.model.storage.batch import Batch, Marker
from streaming.model.storage.log import Log, Records, Span, first_difference, holds, spans_of
from tests.swarm.settled import unsettled

TRANSACTIONAL = Batch(0, 1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
OTHER = IsrProposal((1, 2), Cause.LAG)  # type: ignore[arg-type]


class Patient:
    """A partition on three brokers, all in sync, with twenty acknowledged records and an aborted transaction."""

    def __init__(self, it: Any) -> None:
        self.it = it
        (self.key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
        it.write(self.key, 20)
        it.run(1_000)
        for batch in (TRANSACTIONAL, TRANSACTIONAL._replace(base_sequence=-1, marker=Marker.ABORT)):
            it.cluster.brokers[1].apis.produce.append(1_000, self.key, batch, Acks.ALL)
        it.cluster.flush(1)
        it.run(2_000)
        self.registry = it.cluster.controller.registry
        self.leader = it.cluster.brokers[1].leadership.led[self.key]

    def truth(self, **changes: Any) -> None:
        self.registry.partitions[self.key] = self.registry.partitions[self.key]._replace(**changes)

    def view(self, **changes: Any) -> None:
        self.leader.committed = self.leader.committed._replace(**changes)

    def replica(self, broker: int) -> Any:
        return self.it.cluster.disks[broker].replicas[self.key]

    def cut(self, *brokers: int) -> None:
        for broker in brokers:
            self.replica(broker).log.truncate(5)
            self.replica(broker).high_watermark = 5

    def rewrite(self, broker: int) -> None:
        self.replica(broker).log.epochs = [(7, 0)]

    def fence(self, broker: int) -> None:
        self.registry.brokers[broker] = self.registry.brokers[broker]._replace(fenced=True)

    def damage(self, broker: int) -> None:
        self.it.watch.losing(broker, everything=True)
        self.cut(broker)

    def propose_twice(self) -> None:
        proposals = self.it.cluster.brokers[1].leadership.proposals
        self.leader.pending = proposals._waiting[self.key] = proposals._in_flight[self.key] = OTHER

    def complaints(self) -> dict[str, str | None]:
        view = look(self.it.cluster, self.it.watch, self.key)
        assert view is not None
        return {invariant.name: invariant.complaint(view) for invariant in INVARIANTS}


BREAKS: dict[str, Callable[[Patient], object]] = {
    "TypeOk": lambda it: it.truth(leader_epoch=-1),
    "LeaderInIsr": lambda it: it.truth(isr=(2, 3)),
    "IsrWellFormed": lambda it: it.truth(isr=(1, 2, 2)),
    "ValidControllerIsrAndElr": lambda it: it.truth(isr=(1, 2), elr=(3,)),
    "ValidControllerState": lambda it: it.fence(3),
    "LastKnownLeader": lambda it: it.truth(last_known_elr=(2,)),
    "UncleanExclusion": lambda it: it.damage(3),
    "ValidReplicaState": lambda it: it.view(leader=2),
    "ValidFetcherState": lambda it: it.it.cluster.brokers[1].following.follow(it.key, 2, 9),
    "OneProposalInFlight": Patient.propose_twice,
    "MetadataLogMatching": lambda it: it.view(isr=(1, 2)),
    "ReplicationQuorumSuperset": lambda it: it.view(isr=(1, 2)),
    "OffsetsOrdered": lambda it: setattr(it.replica(2), "high_watermark", 23),
    "EpochCacheIncreasing": lambda it: it.replica(2).log.epochs.append((0, 5)),
    "ValidHighWatermark": lambda it: it.cut(2),
    "HighWatermarkGrows": lambda it: setattr(it.replica(1), "high_watermark", 19),
    "LatestOffsetGrows": lambda it: setattr(it.replica(1), "high_watermark", 19),
    "WeakIsr": lambda it: it.rewrite(2),
    "StrongIsr": lambda it: (it.view(isr=(1,)), it.rewrite(2)),
    "LogMatching": lambda it: it.rewrite(2),
    "LeaderCandidateCompleteness": lambda it: it.cut(2),
    "LeaderCompleteness": lambda it: it.rewrite(1),
    "NoCommittedRecordLostGlobally": lambda it: it.cut(1, 2, 3),
    "ConsistentRead": lambda it: it.rewrite(1),
    "SequencesAreUnique": lambda it: it.replica(2).log.append_batch(TRANSACTIONAL),
    "ReadCommitted": lambda it: it.replica(1).log.producers.aborted.clear(),
}


@pytest.fixture
def patient(lab: Any) -> Patient:
    return Patient(lab())


@pytest.mark.parametrize("name", [invariant.name for invariant in INVARIANTS])
def test_an_invariant_holds_and_can_be_broken(patient: Patient, name: str) -> None:
    assert not any(patient.complaints().values())
    BREAKS[name](patient)
    assert patient.complaints()[name]


def test_every_invariant_says_what_it_states_and_where_it_comes_from() -> None:
    assert all(invariant.statement.endswith(".") for invariant in INVARIANTS)
    assert all("Source:" in (invariant.complaint.__doc__ or "") for invariant in INVARIANTS)
    assert len({*BREAKS, *OTHERS}) == len(INVARIANTS) + len(OTHERS)


@pytest.mark.parametrize(
    "broken", [{"partition_epoch": 7}, {"partition_epoch": 9}, {"leader_epoch": -1}, {"leader_epoch": 6}, {"leader": 2}]
)
def test_epochs_grow_can_be_broken(patient: Patient, broken: dict[str, int]) -> None:
    topic, before = patient.registry.topics[patient.key.topic_id], patient.it.state(patient.key)
    after = before._replace(partition_epoch=before.partition_epoch + 1)
    assert metadata.epochs_grow(Transition(topic, patient.key, before, after, Cause.LAG)) is None
    assert metadata.epochs_grow(Transition(topic, patient.key, before, after._replace(**broken), Cause.LAG))


def test_metadata_offsets_grow_can_be_broken(patient: Patient) -> None:
    patient.it.watch._metadata_end += 1
    with pytest.raises(Violation, match="MetadataOffsetsGrow"):
        patient.it.run(3_000)


def test_broker_epochs_grow_can_be_broken(patient: Patient) -> None:
    patient.it.watch._broker_epochs[3] = (10**6, "")
    patient.it.cluster.kill(3)
    patient.it.run(30_000)
    patient.it.start(3)
    with pytest.raises(Violation, match="BrokerEpochsGrow"):
        patient.it.run(31_000)


def test_valid_broker_state_can_be_broken(patient: Patient) -> None:
    assert metadata.valid_broker_state(patient.it.cluster) is None
    patient.it.cluster.brokers[1].lifecycle.incarnation_id = "somebody else"
    assert metadata.valid_broker_state(patient.it.cluster)


def test_no_split_brain_can_be_broken(patient: Patient) -> None:
    """A second broker writes in an epoch that is not its own."""
    patient.leader.broker = 2
    patient.it.write(patient.key)
    with pytest.raises(Violation, match="NoSplitBrain"):
        patient.it.run(3_000)


def test_a_violation_stops_the_cluster_at_the_step_that_breaks_the_promise(patient: Patient) -> None:
    patient.cut(2)
    patient.it.write(patient.key)
    with pytest.raises(Violation) as caught:
        patient.it.run(3_000)
    assert caught.value.invariant == "ValidHighWatermark"
    assert patient.it.cluster.now < 2_010


def test_an_unclean_election_excuses_the_loss_and_nothing_that_follows(lab: Any) -> None:
    it = lab(eligible_leader_replicas=False)
    (key,) = it.topic("t", [(1, 2)], unclean=True)
    it.write(key, 10)
    it.run(1_000)
    it.cluster.kill(2)
    it.run(15_000)
    it.write(key, 5)
    it.run(15_500)
    it.cluster.kill(1)
    it.start(2)
    it.run(40_000)
    ((lost_key, records, excuse),) = it.watch.losses
    assert (lost_key, records, excuse) == (key, 5, "unclean_election")
    assert it.watch.memories[key].history == it.state(key).leader_epoch
    assert len(it.watch.memories[key].acked) == it.log_end(2, key) == 10


def test_what_should_come_true_is_named_while_it_has_not(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    it.run(2_000)
    assert unsettled(it.cluster, it.watch) == []
    it.cluster.pause(2)
    it.write(key, 3)
    it.run(20_000)
    named = {complaint.partition(":")[0] for complaint in unsettled(it.cluster, it.watch)}
    assert named == {"EventuallyRuns", "EventuallyMetadataConverges", "EventuallyWritten"}


def test_ranges_of_records_are_found_again_in_logs() -> None:
    log, other = Log(), Log()
    for epoch, offset, count in ((1, 0, 5), (3, 5, 4)):
        log.begin_epoch(epoch, offset)
        log.append(count)
    other.begin_epoch(1, 0)
    other.append(7)
    assert spans_of(log, 2, 9) == [Span(1, 2, 5), Span(3, 5, 9)]
    assert first_difference(log, other, 100) == first_difference(other, log, 100) == 5
    assert first_difference(log, other, 5) is None
    assert holds(log, Span(1, 0, 5))
    assert not holds(log, Span(1, 0, 6))
    assert not holds(log, Span(3, 8, 10))
    records = Records()
    for span in (Span(1, 0, 3), Span(1, 3, 5), Span(1, 5, 7)):
        records.add(span)
    assert (records.spans, len(records)) == ([Span(1, 0, 7)], 7)
    assert records.missing_from(other) == []
    assert records.missing_from(log) == [Span(1, 5, 7)]
    records.keep_only(log)
    assert records.spans == [Span(1, 0, 5)]
