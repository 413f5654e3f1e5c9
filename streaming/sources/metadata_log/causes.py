"""Why an ISR or a leader changed, from the order in which the controller wrote its records."""

# Theory of operation
#
# No record of Kafka says why an ISR or a leader changed. PartitionChangeRecord (KIP-631) has the new values and nothing
# else. But the controller is a single writer, and each of its operations writes its records in a fixed order, so the
# neighbours of a record show which operation wrote it. The order is that of ``ReplicationControlManager`` and
# ``ClusterControlManager`` of Apache Kafka; eligible leader replicas are those of KIP-966, recovery of a leader
# KIP-704.
#
# The unit of the proof is what takes effect together: a record batch, or a metadata transaction (KIP-868). One batch
# may hold several operations, because the controller lets them linger (``controller.quorum.append.linger.ms``). So a
# cause is never derived from "there is a fencing in this batch", but from the run: adjacent changes that all fit the
# operation, ended by the first record that does not.
#
#   | operation                                         | order of its records                                         |
#   |---------------------------------------------------|--------------------------------------------------------------|
#   | fencing, new registration, unregistration, failed | the partition changes first, the registration record last:   |
#   | log directory                                     | the run before it (``_mark_removals``)                       |
#   | unfencing                                         | the registration record first, then elections of partitions  |
#   |                                                   | without leader: the run behind it                            |
#   | begin of a controlled shutdown                    | the registration record first; changes follow for as long as |
#   |                                                   | it takes, also in later batches                              |
#   | AlterPartition of a leader (KIP-497)              | partition changes alone, adjacent, of one leader that stays  |
#   | AssignReplicasToDirs (KIP-858) to a directory     | the assignments first, then the removals of the same         |
#   | that its broker has not registered                | partitions: TWO_PROCESSES (``_mark_foreign_directories``)    |
#
# First all records of a unit are put into their context (``ChangeInContext``), then each change is explained by the
# first rule of ``_RULES`` that applies. The order of the rules is a part of them: each may rely on those before.
#
# | rule                     | applies to                                       | cause                                |
# |--------------------------|--------------------------------------------------|--------------------------------------|
# | ``_unclean``             | a leader that has to recover was elected         | UNCLEAN_ELECTION; LAST_KNOWN_LEADER, |
# |                          |                                                  | ambiguous unless only unfencing can  |
# | ``_reassignment``        | the record sets, adds or removes replicas        | REASSIGNMENT; with a removal         |
# |                          |                                                  | ambiguous with its cause             |
# | ``_removal``             | the change is in the run of a removal            | that of the run, see below           |
# | ``_controlled_shutdown`` | a broker in controlled shutdown left the ISR     | CONTROLLED_SHUTDOWN                  |
# | ``_election``            | a partition without leader got one               | ELR_ELECTION; UNFENCED, ambiguous    |
# |                          |                                                  | with PREFERRED_ELECTION elsewhere    |
# | ``_preferred``           | the first replica leads now, the ISR is the same | PREFERRED_ELECTION                   |
# | ``_by_leader``           | the leader stays, the ISR grew or shrank         | EXPAND; LAG, never proven            |
# | none                     | ISR, leader or ELR changed                       | UNKNOWN                              |
#
# What stays ambiguous, and why the records cannot decide it:
#   - FENCED or CONTROLLED_SHUTDOWN, of a broker that led nothing: both write the same records. A second fencing of the
#     broker one session timeout later proves the shutdown (``causes_revised``): it left its session in place.
#   - FENCED or LAG, at the begin of a run before a fencing: the leader may have removed the same broker just before.
#     What takes the leadership away, or lies between changes of other leaders, is the controller's
#     (``_first_of_controller``).
#   - UNCLEAN_RESTART or RESTART, where no partition shows whether the broker lost its eligibility (KIP-966).
#   - FENCED, DIR_FAILURE or a restart, where the registration record is in a later unit (``_mark_unfinished_removal``).
#   - LAG or LEADER_STALL: a leader removes by its own clock, and one that was paused sees everyone lag. Without a
#     second witness LAG is inferred at best.
#   - LAG, FENCED or CONTROLLED_SHUTDOWN, with a new leader epoch and the same leader: Kafka before 3.6, or ZooKeeper.
#
# Invariants
#   1. PROVEN means that no other operation of Kafka can have written these records; AMBIGUOUS names its candidates, the
#      likeliest first, and the true one is among them; only UNKNOWN has none. Against the model, which knows the truth:
#      tests/sources/test_simulated.py; against real logs: tests/sources/test_causes.py.
#   2. A cause depends on the records of its unit and on the state before, on no time and no earlier cause. So every
#      collector of a log finds the same, wherever its fetches are cut. tests/sources/metadata_log/test_source.py.
#   3. A unit with a record that hides the state gets no causes: its neighbours mean nothing then (``image``).
#      tests/sources/test_image.py.
#   4. Runs do not overlap, because the record that ends one is no change: a change belongs to one removal at most.
#   5. LAG is never proven. tests/sources/test_causes.py.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.records import (
    RECOVERING,
    BrokerRegistrationChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    UnregisterBroker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import TopicId

# The context of a partition change: what the records around it in the same unit say about it. Pure.


class Explanation(NamedTuple):
    """A cause, its evidence, and the possible causes (with ambiguous evidence only)."""

    cause: Cause
    evidence: Evidence
    # Empty unless the evidence is ambiguous; then the first one is ``cause``. Rules that know none leave it empty, too.
    candidates: tuple[Cause, ...] = ()


def proven(cause: Cause) -> Explanation:
    """Return a cause that is the only one the record sequence allows."""
    return Explanation(cause, Evidence.PROVEN)


def ambiguous(cause: Cause, *others: Cause) -> Explanation:
    """Return the likeliest of several causes that the record sequence allows."""
    return Explanation(cause, Evidence.AMBIGUOUS, (cause, *others))


def inferred(cause: Cause) -> Explanation:
    """Return the likeliest cause, where the record sequence excludes no other but makes each of them unlikely."""
    return Explanation(cause, Evidence.INFERRED)


@dataclass(frozen=True, slots=True)
class AppliedRecord:
    """One record that was applied, with the partition before and after it when it is a ``PartitionChange``.

    ``is_amended``: it registers a broker whose process is the same as before, so it removes none.
    """

    record: MetadataRecord
    before: Partition | None = None
    after: Partition | None = None
    is_amended: bool = False


@dataclass(slots=True)
class ChangeInContext:
    """One ``PartitionChange`` with its context.

    Attributes:
        record: the change.
        before: the partition before it.
        after: the partition after it.
        removal: why a broker was removed, where the change belongs to the removal of a broker.
        broker_unfenced: the change belongs to the unfencing of a broker.
        shutting_down: the brokers in controlled shutdown.
        unclean_enabled: whether unclean elections are enabled for the topic.
        removed_by_leader: the brokers that this leader removed in this batch, from any of its partitions.
        followers_of_leader: the brokers that stayed in the ISR of any of these partitions, without the leader.
        left: brokers that left the ISR.
        joined: brokers that joined the ISR.
    """

    record: PartitionChange
    before: Partition
    after: Partition
    # Set by ``_mark_removals``. None after it: no record of the unit says that the change belongs to a removal.
    removal: Explanation | None = None
    # True only for elections of leaderless partitions directly behind an unfencing: ``_mark_shutdowns_and_unfencings``.
    broker_unfenced: bool = False
    # As of this record, not of the end of the unit: a shutdown that begins later in it explains nothing here.
    shutting_down: frozenset[BrokerId] = field(default_factory=frozenset)
    # Looked up by ``explain``, and only where the leader is recovering; else False means nothing.
    unclean_enabled: bool = False
    # Both empty unless ``removal`` is None, the leader stays and the ISR shrank. They are disjoint, and the same in all
    # such changes of one leader in a unit (``_mark_leaders``).
    removed_by_leader: frozenset[BrokerId] = frozenset()
    followers_of_leader: frozenset[BrokerId] = frozenset()
    # Derived once; both are disjoint from each other, never changed afterwards.
    left: set[BrokerId] = field(init=False)
    joined: set[BrokerId] = field(init=False)

    def __post_init__(self) -> None:
        """Compare the ISR before and after."""
        self.left = set(self.before.isr).difference(self.after.isr)
        self.joined = set(self.after.isr).difference(self.before.isr)

    @property
    def leader_moved(self) -> bool:
        """True if the leader is another one, or none (setting the same leader only increments its epoch)."""
        return self.before.leader != self.after.leader

    @property
    def elected(self) -> bool:
        """True if another broker leads now."""
        return self.leader_moved and self.after.leader != NO_LEADER

    def drops_from_isr(self, broker: BrokerId) -> bool:
        """Return whether a broker left the ISR, or was its last member and lost the leadership.

        Without ELR the last member stays in the ISR when it is fenced; only the leader becomes -1.
        """
        orphaned = self.before.leader == broker and self.after.leader == NO_LEADER
        return orphaned or (broker in self.before.isr and broker not in self.after.isr)

    def drops_without_reassignment(self, broker: BrokerId) -> bool:
        """Return the same, but False for a change of the replicas."""
        return self.record.replicas is None and self.drops_from_isr(broker)

    def drops_from_elr(self, broker: BrokerId) -> bool:
        """Return whether a broker left the eligible leader replicas without joining the ISR.

        Not if the leader let another one join: where the ISR is large enough again, no replica needs to be eligible.
        """
        if self.joined and not self.leader_moved:
            return False
        return broker in self.before.elr and broker not in self.after.elr and broker not in self.after.isr

    def loses_eligibility(self, broker: BrokerId) -> bool:
        """Return whether a broker left the ELR, or as the last member of the ISR did not become eligible."""
        is_last = broker in self.before.isr and not self.after.isr and broker not in self.after.elr
        return is_last or self.drops_from_elr(broker)

    def drops(self, broker: BrokerId) -> bool:
        """Return whether a broker left the ISR or the eligible leader replicas."""
        return self.drops_from_isr(broker) or self.drops_from_elr(broker)


def changes_in_context(
    steps: Sequence[AppliedRecord],
    shutting_down: Iterable[BrokerId],
    log_dirs: Mapping[BrokerId, frozenset[str]],
    *,
    may_have_elr: bool,
) -> list[ChangeInContext | None]:
    """Return each ``PartitionChange`` of one batch with its context, None for other records."""
    changes = [_in_context(step) for step in steps]
    _mark_shutdowns_and_unfencings(steps, changes, frozenset(shutting_down))
    _mark_removals(steps, changes, may_have_elr=may_have_elr)
    _mark_foreign_directories(changes, log_dirs)
    _mark_leaders(changes)
    return changes


def _in_context(step: AppliedRecord) -> ChangeInContext | None:
    if isinstance(step.record, PartitionChange) and step.before is not None and step.after is not None:
        return ChangeInContext(step.record, step.before, step.after)
    return None


def _mark_shutdowns_and_unfencings(
    steps: Sequence[AppliedRecord], changes: Sequence[ChangeInContext | None], shutting_down: frozenset[BrokerId]
) -> None:
    """Set, for each change, the brokers in controlled shutdown and whether it belongs to an unfencing.

    Invariant: the elections of an unfencing directly follow its registration record, and are of leaderless partitions
    only; any other record ends the run.
    """
    unfencing = False
    for step, change in zip(steps, changes, strict=True):
        record = step.record
        if change is not None:
            unfencing = unfencing and change.before.leader == NO_LEADER
            change.broker_unfenced, change.shutting_down = unfencing, shutting_down
            continue
        unfencing = isinstance(record, BrokerRegistrationChange) and record.fenced < 0
        if isinstance(record, BrokerRegistrationChange) and record.in_controlled_shutdown > 0:
            shutting_down |= {record.broker}
        elif isinstance(record, RegisterBroker | UnregisterBroker) and not step.is_amended:
            shutting_down -= {record.broker}


def _mark_removals(
    steps: Sequence[AppliedRecord], changes: Sequence[ChangeInContext | None], *, may_have_elr: bool
) -> None:
    """Find the run of changes before each record that removes a broker, and set the cause of the removal."""
    for index, step in enumerate(steps):
        record = step.record
        if isinstance(record, BrokerRegistrationChange) and record.fenced > 0:
            run = _run_before(changes, index, record.broker, ChangeInContext.drops_from_isr)
            _set_removal(run, _fencing(run, record.broker))
            _doubt_begin(run, record.broker)
        elif isinstance(record, BrokerRegistrationChange) and record.log_dirs is not None:
            run = _run_before(changes, index, record.broker, ChangeInContext.drops_from_isr)
            _set_removal(run, proven(Cause.DIR_FAILURE))
        elif isinstance(record, RegisterBroker | UnregisterBroker) and not step.is_amended:
            run = _run_before(changes, index, record.broker, ChangeInContext.drops)
            _set_removal(run, _replacement(run, record, may_have_elr=may_have_elr))
    _mark_unfinished_removal(changes)


# Directory ids that stand for none: unassigned, lost, migrating (KIP-858).
_RESERVED: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})


def _run_before(
    changes: Sequence[ChangeInContext | None],
    end: int,
    broker: BrokerId,
    belongs: Callable[[ChangeInContext, BrokerId], bool],
) -> list[ChangeInContext]:
    run: list[ChangeInContext] = []
    for change in reversed(changes[:end]):
        if change is None or not belongs(change, broker):
            break
        run.append(change)
    return run


def _set_removal(run: Iterable[ChangeInContext], why: Explanation) -> None:
    for change in run:
        change.removal = why


def _doubt_begin(run: Sequence[ChangeInContext], broker: BrokerId) -> None:
    """Doubt that the begin of a run belongs to a broker's fencing: what leaders removed for lag directly before may."""
    in_order = run[::-1]
    for change in in_order[: _first_of_controller(in_order, broker)]:
        if change.removal == proven(Cause.FENCED):
            change.removal = ambiguous(Cause.FENCED, Cause.LAG)


def _first_of_controller(run: Sequence[ChangeInContext], broker: BrokerId) -> int:
    """Return the place from which on a run is certainly the controller's own removal of a broker.

    A leader keeps its leadership when it removes a follower, and has one AlterPartition under way at a time, whose
    changes are adjacent. So what is of another leader in between, and what takes the leadership away, is not its own.
    """
    ended, last = set[BrokerId](), NO_LEADER
    for place, change in enumerate(run):
        leader = change.before.leader
        if leader == broker or change.leader_moved or leader in ended:
            return place
        if leader != last:
            ended.add(last)
            last = leader
    return len(run)


def _fencing(run: Sequence[ChangeInContext], broker: BrokerId) -> Explanation:
    """Distinguish an expired session from a controlled shutdown.

    A controlled shutdown first moves every leadership away under ``inControlledShutdown``, so a broker that is fenced
    while it leads has lost its session. One that leads nothing is fenced in one step in both cases, which is ambiguous.
    """
    if run and broker in run[0].shutting_down:
        return proven(Cause.CONTROLLED_SHUTDOWN)
    if any(change.before.leader == broker for change in run):
        return proven(Cause.FENCED)
    return ambiguous(Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


def _replacement(
    run: Sequence[ChangeInContext], record: RegisterBroker | UnregisterBroker, *, may_have_elr: bool
) -> Explanation:
    """Distinguish a clean from an unclean restart: after the latter the broker is eligible nowhere (KIP-966).

    Where no partition was or became short of its minimum ISR, eligibility says nothing; a broker that is still in ISRs
    when it registers again has hardly stopped cleanly. Without ELR there is one restart only.
    """
    if isinstance(record, UnregisterBroker):
        return proven(Cause.UNREGISTERED)
    if any(change.loses_eligibility(record.broker) for change in run):
        return proven(Cause.UNCLEAN_RESTART)
    if not may_have_elr or any(record.broker in change.after.elr for change in run):
        return proven(Cause.RESTART)
    return ambiguous(Cause.UNCLEAN_RESTART, Cause.RESTART)


_UNFINISHED: Final = ambiguous(Cause.FENCED, Cause.DIR_FAILURE, Cause.UNCLEAN_RESTART, Cause.RESTART)


def _mark_unfinished_removal(changes: Sequence[ChangeInContext | None]) -> None:
    """Set the cause of a removal that the controller split over batches: its registration record is in a later one.

    Invariant: a leader never removes itself, so a run in which a leader leaves its ISR was written by the controller.
    """
    last = changes[-1] if changes else None
    if last is None:
        return
    for broker in set(last.before.isr) - last.shutting_down:
        run = _run_before(changes, len(changes), broker, ChangeInContext.drops_without_reassignment)
        if any(change.before.leader == broker for change in run):
            _set_removal(run, _UNFINISHED)


def _mark_foreign_directories(
    changes: Iterable[ChangeInContext | None], log_dirs: Mapping[BrokerId, frozenset[str]]
) -> None:
    """Set the cause of removals after a broker's replica was placed in a directory that this broker never registered.

    A broker registers every directory that it has when it starts, so it was another process with its id. What it placed
    in a directory that has failed since was registered.
    """
    foreign: dict[tuple[TopicId, int], BrokerId] = {}
    for change in changes:
        if change is None:
            continue
        key = (change.record.topic_id, change.record.partition)
        for broker, directory in zip(change.after.replicas, change.record.directories or (), strict=False):
            own = log_dirs.get(broker)
            if own and directory not in own and directory not in _RESERVED:
                foreign[key] = broker
        if key in foreign and change.removal in (None, _UNFINISHED) and change.drops_without_reassignment(foreign[key]):
            change.removal = proven(Cause.TWO_PROCESSES)


def _mark_leaders(changes: Iterable[ChangeInContext | None]) -> None:
    """Set, for each removal that a leader may have decided, what this leader removed and kept in this batch."""
    by_leader: dict[BrokerId, list[ChangeInContext]] = {}
    for change in changes:
        if change is not None and change.removal is None and change.left and not change.leader_moved:
            by_leader.setdefault(change.after.leader, []).append(change)
    for leader, own in by_leader.items():
        removed = frozenset[BrokerId]().union(*(change.left for change in own))
        followers = frozenset[BrokerId]().union(*(change.after.isr for change in own)) - {leader} - removed
        for change in own:
            change.removed_by_leader, change.followers_of_leader = removed, followers


# The rules: from a context to a cause. The first that applies wins.


_UNKNOWN: Final = Explanation(Cause.UNKNOWN, Evidence.AMBIGUOUS)


def explain(
    steps: Sequence[AppliedRecord],
    *,
    shutting_down: Iterable[BrokerId],
    unclean_enabled: Callable[[TopicId], bool],
    may_have_elr: bool,
    log_dirs: Mapping[BrokerId, frozenset[str]] | None = None,
) -> list[Explanation | None]:
    """Return the cause of each step of one batch.

    Args:
        steps: every record of the batch in log order.
        shutting_down: brokers in controlled shutdown before the batch.
        unclean_enabled: whether the log enables ``unclean.leader.election.enable`` for a topic.
        may_have_elr: whether eligible leader replicas are on, or it is unknown.
        log_dirs: the directories that the present process of each broker has registered, those that failed since
            included; none where they are unknown.

    Returns:
        one item per step: None for records that are not a ``PartitionChange``, and for changes that affect neither ISR,
        leader, replicas nor eligible leader replicas (directories, the end of a leader's recovery).
    """
    changes = changes_in_context(steps, shutting_down, log_dirs or {}, may_have_elr=may_have_elr)
    for change in changes:
        if change is not None and change.after.leader_recovery_state == RECOVERING:
            change.unclean_enabled = unclean_enabled(change.record.topic_id)
    return [None if change is None else _explain(change) for change in changes]


def _explain(change: ChangeInContext) -> Explanation | None:
    """Return the result of the first rule that applies."""
    for rule in _RULES:
        explanation = rule(change)
        if explanation is not None:
            return explanation
    is_relevant = change.left or change.joined or change.leader_moved or change.before.elr != change.after.elr
    return _UNKNOWN if is_relevant else None


def _unclean(change: ChangeInContext) -> Explanation | None:
    """A new leader may lack committed records: an unclean election, or the last known leader (KIP-966)."""
    if not change.elected or change.after.leader_recovery_state != RECOVERING:
        return None
    # The state stays until the ISR changes (KIP-704). An election of an in-sync replica meanwhile is clean.
    was_recovering = change.before.leader_recovery_state == RECOVERING
    if was_recovering and change.after.leader in {*change.before.isr, *change.before.elr}:
        return None
    if change.before.last_known_elr != (change.after.leader,):
        return proven(Cause.UNCLEAN_ELECTION)
    # Outside of an unfencing an administrator's unclean election leaves the same record.
    if change.unclean_enabled or not change.broker_unfenced:
        return ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
    return proven(Cause.LAST_KNOWN_LEADER)


def _reassignment(change: ChangeInContext) -> Explanation | None:
    record = change.record
    if record.replicas is None and record.adding_replicas is None and record.removing_replicas is None:
        return None
    if change.removal is None:
        return proven(Cause.REASSIGNMENT)
    # The removal of a broker may complete a reassignment, and a reassignment may end directly before a removal.
    return ambiguous(Cause.REASSIGNMENT, change.removal.cause)


def _removal(change: ChangeInContext) -> Explanation | None:
    return change.removal


def _controlled_shutdown(change: ChangeInContext) -> Explanation | None:
    if any(change.drops_from_isr(broker) for broker in change.shutting_down):
        return proven(Cause.CONTROLLED_SHUTDOWN)
    return None


def _election(change: ChangeInContext) -> Explanation | None:
    """A leaderless partition gets a leader again, without data loss."""
    if not change.elected or change.before.leader != NO_LEADER:
        return None
    if not change.before.isr and change.after.leader in change.before.elr:
        return proven(Cause.ELR_ELECTION)
    if change.left or change.joined:
        return None
    return proven(Cause.UNFENCED) if change.broker_unfenced else ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)


def _preferred(change: ChangeInContext) -> Explanation | None:
    is_isr_unchanged = not change.left and not change.joined
    if change.elected and is_isr_unchanged and change.after.leader == change.after.replicas[0]:
        return proven(Cause.PREFERRED_ELECTION)
    return None


def _by_leader(change: ChangeInContext) -> Explanation | None:
    """A leader's AlterPartition: it removes followers that lag and adds those that caught up."""
    if change.leader_moved or bool(change.left) == bool(change.joined):
        return None
    if change.joined:
        return proven(Cause.EXPAND)
    if change.record.leader is not None:
        # With a new leader epoch: a leader's own shrink before 3.6, or a ZooKeeper controller removed a broker.
        return ambiguous(Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    return _lag(change)


def _lag(change: ChangeInContext) -> Explanation:
    """A follower lags by the leader's clock alone, and a leader that was itself paused sees all followers lag at once.

    So one leader's removals of a batch are judged together. A leader that lost several brokers, or its last one, may be
    the one that stalled. A follower that stayed makes that unlikely but does not exclude it: its fetch may have been
    the first after the pause. So lag is never proven.
    """
    several, alone = len(change.removed_by_leader) > 1, not change.followers_of_leader
    if several:
        return ambiguous(*((Cause.LEADER_STALL, Cause.LAG) if alone else (Cause.LAG, Cause.LEADER_STALL)))
    return ambiguous(Cause.LAG, Cause.LEADER_STALL) if alone else inferred(Cause.LAG)


_RULES: Final[tuple[Callable[[ChangeInContext], Explanation | None], ...]] = (
    _unclean,
    _reassignment,
    _removal,
    _controlled_shutdown,
    _election,
    _preferred,
    _by_leader,
)
