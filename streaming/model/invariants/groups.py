"""Invariants of groups. Each gives its complaints; none costs anything unless it is asked.

:class:`GroupWatch` asks them all, and remembers what may never go back. It is not part of :class:`watch.Watch`, for it
looks at every group.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.model.clients.consumer import Consumer
from streaming.model.cluster.descriptions import groups
from streaming.model.coordinators.group_log import read_groups
from streaming.model.coordinators.group_state import GroupState, MemberState
from streaming.model.invariants.watch import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.coordinators.group_log import Group


def no_double_assignment(group: Group) -> Iterator[str]:
    """A partition belongs to at most one member of a group at a time.

    Source: NoDoubleClientAssignment of Vanlightly's specification of KIP-848. What a member has not given up counts.
    """
    if group.consumer is not None:
        yield from _twice(member.held for member in group.consumer.members.values())
    if group.classic is not None:
        yield from _twice(member.share for member in group.classic.members.values())


def legal_target(group: Group) -> Iterator[str]:
    """The target gives each partition to one member, who subscribes to it. Source: LegalTargetAssignment, there."""
    consumer = group.consumer
    if consumer is None:
        return
    yield from _twice(consumer.target.values())
    for name, share in consumer.target.items():
        subscribed = consumer.members[name].topics if name in consumer.members else frozenset()
        unwanted = sorted(key for key in share if key.topic_id not in subscribed)
        if unwanted:
            yield f"the target gives {name} what it does not want: {unwanted}"


def valid_member_epochs(group: Group) -> Iterator[str]:
    """Member epoch ≤ target epoch ≤ group epoch. Source: ValidMemberEpoch, there."""
    consumer = group.consumer
    if consumer is None:
        return
    if consumer.target_epoch > consumer.epoch:
        yield f"target epoch {consumer.target_epoch} beyond group epoch {consumer.epoch}"
    for name, member in consumer.members.items():
        if not member.previous_epoch < member.epoch <= consumer.target_epoch:
            yield f"{name}: epoch {member.epoch} after {member.previous_epoch}, target epoch {consumer.target_epoch}"


def valid_stable_state(group: Group) -> Iterator[str]:
    """Every member has its target where all are stable. Source: ValidStableGroupState, there."""
    consumer = group.consumer
    if consumer is None or consumer.state is not GroupState.STABLE:
        return
    for name, member in consumer.members.items():
        if (
            member.state is not MemberState.STABLE
            or member.revoking
            or member.assigned != consumer.target.get(name, frozenset())
        ):
            yield f"the group is stable, and {name} is not: {member}"


def valid_classic_state(group: Group) -> Iterator[str]:
    """An empty group has no members, any other has a leader among them. Source: ours, after ``ClassicGroup``."""
    classic = group.classic
    if classic is None:
        return
    is_rebalancing = classic.state is GroupState.PREPARING_REBALANCE
    if not is_rebalancing and (classic.state is GroupState.EMPTY) is bool(classic.members):
        yield f"{classic.state.value} with {len(classic.members)} members"
    if classic.state is GroupState.STABLE and classic.leader not in classic.members:
        yield f"the leader {classic.leader} is no member"


INVARIANTS: Final[tuple[tuple[str, Callable[[Group], Iterator[str]]], ...]] = (
    ("NoDoubleClientAssignment", no_double_assignment),
    ("LegalTargetAssignment", legal_target),
    ("ValidMemberEpoch", valid_member_epochs),
    ("ValidStableGroupState", valid_stable_state),
    ("ValidClassicState", valid_classic_state),
)
# Invariants of the whole cluster, or noticed over time.
OTHERS: Final = ("StateIsTheLog", "OwnedIsHeld", "ConsistentRead", "AcknowledgedCommitsStay")


def state_is_the_log(cluster: Cluster) -> Iterator[str]:
    """A coordinator knows of members what another would read from its log. Source: ours."""
    for broker in cluster.brokers.values():
        for loaded in broker.apis.groups.log.loaded():
            read = read_groups(loaded.partition)
            for name, group in loaded.groups.items():
                written = read[name].consumer if name in read else None
                if group.consumer != written:
                    yield f"{name}: {broker.broker} knows {group.consumer}, its log says {written}"


def owned_is_held(cluster: Cluster) -> Iterator[str]:
    """Whatever a current member reads, its coordinator knows to be with it. Source: ours.

    With NoDoubleClientAssignment: no two current members read the same. One that was expelled may not know it yet.
    """
    members = [
        client.membership
        for client in cluster.clients.values()
        if isinstance(client, Consumer) and client.membership is not None
    ]
    by_name = {group.name: group for group, _ in groups(cluster)}
    for member in members:
        group = by_name.get(member.group)
        held = None if group is None else _held(group, *member.identity)
        if held is not None and not member.owned <= held:
            yield f"{member.member_id} of {member.group} reads {sorted(member.owned - held)}, which is not with it"


def consumed_is_there(cluster: Cluster) -> Iterator[str]:
    """Whatever a consumer's application got is still exactly there on the leader.

    Source: ConsistentRead of Vanlightly's specifications, of real consumers. Scope: no record was lost.
    """
    for client in [client for client in cluster.clients.values() if isinstance(client, Consumer)]:
        for key, records in client.consumed.items():
            state = cluster.controller.registry.registration_of(key)
            disk = None if state is None else cluster.disks.get(state.leader)
            missing = records.missing_from(disk.replicas[key].log) if disk is not None else []
            if missing:
                yield f"{client.node} read {missing[0]} of {key}, which its leader does not have"


def _held(group: Group, member_id: str, generation: int) -> frozenset[TopicPartition] | None:
    """Give what a member may read; None if it is none, or of another generation."""
    if group.consumer is not None:
        current = group.consumer.members.get(member_id)
        return None if current is None or generation < current.previous_epoch else current.held
    classic = group.classic
    if classic is None or classic.state is not GroupState.STABLE or generation != classic.generation:
        return None
    member = classic.members.get(member_id)
    # What a cooperative member came with is given to no other member in this generation.
    return None if member is None else frozenset((*member.share, *member.owned))


class GroupWatch:
    """Asks every invariant of groups at once; call :meth:`check` as often as you like.

    What was acknowledged stays while no consumer seeks back and no partition loses records. A commit whose answer was
    lost may come to light later and be overtaken by an older one: its member was right when it committed.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._acknowledged: dict[tuple[str, TopicPartition], int] = {}

    def check(self) -> None:
        """Check every group.

        Raises:
            Violation: a promise is broken.
        """
        self._remember()
        for group, log in groups(self._cluster):
            for name, complaints in INVARIANTS:
                for complaint in complaints(group):
                    raise Violation(name, group.name, complaint)
            committed = {offset.topic_partition: offset.committed.offset for offset in log.committed(group)}
            for (name, key), offset in self._acknowledged.items():
                if name == group.name and committed.get(key, 0) < offset:
                    what = f"{offset} was acknowledged, {committed.get(key)} is committed"
                    raise Violation("AcknowledgedCommitsStay", f"{name} {key}", what)
        for complaint in state_is_the_log(self._cluster):
            raise Violation("StateIsTheLog", "groups", complaint)
        for complaint in owned_is_held(self._cluster):
            raise Violation("OwnedIsHeld", "groups", complaint)
        for complaint in consumed_is_there(self._cluster):
            raise Violation("ConsistentRead", "consumers", complaint)

    def _remember(self) -> None:
        for client in self._cluster.clients.values():
            if isinstance(client, Consumer) and client.committing is not None and client.config.group is not None:
                for key, offset in client.committing.committed.items():
                    where = client.config.group, key
                    self._acknowledged[where] = max(offset.offset, self._acknowledged.get(where, 0))


def _twice(shares: Iterable[Iterable[TopicPartition]]) -> Iterator[str]:
    count = Counter(key for share in shares for key in share)
    several = sorted(key for key, times in count.items() if times > 1)
    if several:
        yield f"more than one member has {several}"
