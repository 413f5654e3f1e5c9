"""Registrations that block an upgrade are named, and what unblocks each."""

from __future__ import annotations

import pytest

from streaming.contracts.registrations import Registration, blockers, blocks, unblocked_by

GHOST = Registration(102, True, 21, False)
VOTER = Registration(101, True, 30, True)
OLD_VOTER = Registration(103, True, 21, True)
DEAD, UP = Registration(7, False, 21, False), Registration(1, False, 30, True)


def test_what_a_node_that_is_registered_does_not_support_blocks() -> None:
    unknown = Registration(104, True, None, None)
    assert blockers([UP, DEAD, VOTER, GHOST, unknown], 30) == [GHOST, DEAD]
    assert blockers([UP, VOTER, unknown], 30) == []
    assert [blocks(each) for each in (GHOST, OLD_VOTER, DEAD, Registration(8, False, 21, None))] == [
        "controller 102, which is no voter (supports 21)", "controller 103 (supports 21)",
        "broker 7, which is down (supports 21)", "broker 8 (supports 21)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("each", "finalized", "fix"),
    [
        (GHOST, 21, "start a controller of the new version with the id 102 once, as an observer, so that it registers"),
        (GHOST, 33, "kafka-cluster.sh unregister-controller --id 102 if controller 102 is gone for good"),
        (OLD_VOTER, 33, "upgrade controller 103"),
        (DEAD, 21, "upgrade broker 7, or kafka-cluster.sh unregister --id 7 if it is gone for good"),
        (Registration(8, False, 21, True), 21, "upgrade broker 8"),
    ],
)
def test_what_unblocks_follows_from_what_is_registered(each: Registration, finalized: int, fix: str) -> None:
    (said,) = unblocked_by([each], finalized)
    assert said.startswith(fix)
