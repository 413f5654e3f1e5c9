"""The invariants of groups can fail: each is shown a group that keeps it, then the same with one thing broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.contracts.identifiers import TopicPartition
from streaming.model.clients.positions import GroupProtocol
from streaming.model.coordinators.group_state import GroupState
from streaming.model.invariants.groups import INVARIANTS, OTHERS, GroupWatch
from streaming.model.invariants.watch import Violation
from streaming.model.messages.clients import CONSUMER_OFFSETS


class Patient:
    """A consumer group of two members and a classic one of one, which read four records of two partitions."""

    def __init__(self, it: Any) -> None:
        it.topic(CONSUMER_OFFSETS, [(1, 2, 3)])
        self.keys: list[TopicPartition] = it.topic("t", [(1, 2, 3)] * 2)
        for key in self.keys:
            it.write(key, 4)
        self.members = [it.member("new", "t", node=node, protocol=GroupProtocol.CONSUMER) for node in (2_000, 2_001)]
        it.member("old", "t", node=2_002)
        it.run(20_000)
        (loaded,) = it.cluster.brokers[1].apis.groups.log.loaded()
        self.it, self.loaded, self.new, self.old = it, loaded, loaded.groups["new"], loaded.groups["old"]

    def change(self, member: str, **changes: Any) -> None:
        group = self.new.consumer
        changed = group.members[member]._replace(**changes)
        self.new.consumer = group._replace(members={**group.members, member: changed})

    def target(self, **changes: Any) -> None:
        self.new.consumer = self.new.consumer._replace(**changes)

    def forget_commits(self) -> None:
        for group in (self.new, self.old):
            group.written.clear()

    def cut(self) -> None:
        for broker in (1, 2, 3):
            self.it.cluster.disks[broker].replicas[self.keys[0]].log.truncate(2)


BREAKS: dict[str, Callable[[Patient], object]] = {
    "NoDoubleClientAssignment": lambda it: it.change("consumer-2000", assigned=frozenset(it.keys)),
    "LegalTargetAssignment": lambda it: it.target(target={"nobody": frozenset(it.keys)}),
    "ValidMemberEpoch": lambda it: it.change("consumer-2000", epoch=9),
    "ValidStableGroupState": lambda it: it.change("consumer-2000", assigned=frozenset()),
    "ValidClassicState": lambda it: setattr(it.old.classic, "state", GroupState.EMPTY),
    "StateIsTheLog": lambda it: it.target(since_ms=1),
    "OwnedIsHeld": lambda it: setattr(it.members[0].membership, "owned", frozenset(it.keys)),
    "ConsistentRead": Patient.cut,
    "AcknowledgedCommitsStay": Patient.forget_commits,
}


@pytest.mark.parametrize("name", [*(name for name, _ in INVARIANTS), *OTHERS])
def test_an_invariant_of_groups_holds_and_can_be_broken(lab: Any, name: str) -> None:
    patient = Patient(lab())
    watch = GroupWatch(patient.it.cluster)
    watch.check()
    BREAKS[name](patient)
    with pytest.raises(Violation) as caught:
        watch.check()
    assert caught.value.invariant == name
