"""Where replicas go while they move, when a move is complete, and the way back: Kafka's own vectors (KIP-455)."""

from __future__ import annotations

import pytest

from streaming.model.constants import Switches
from streaming.model.controller.change import Assignment, Target, build, complete, reassign, revert
from streaming.model.messages.registrations import PartitionRegistration as Registration


def assignment(replicas: str, adding: str = "", removing: str = "") -> Assignment:
    """Spell brokers as digits."""
    return Assignment(*(tuple(int(digit) for digit in part) for part in (replicas, adding, removing)))  # type: ignore[arg-type]


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(digit) for digit in text)


@pytest.mark.parametrize(
    ("old", "target", "expected"),
    [
        ("321", "36215", assignment("36215", "56", "")),
        ("3210", "31", assignment("3102", "", "02")),
        ("3210", "7319", assignment("731902", "79", "02")),
        ("3210", "0132", assignment("0132")),
    ],
)
def test_wanted_replicas_stand_before_those_to_be_removed(old: str, target: str, expected: Assignment) -> None:
    assert reassign(assignment(old), ids(target)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "target", "isr", "expected"),
    [
        ("012", "345", "01234", None),
        ("012", "345", "012345", ("345", "345")),
        ("012", "013", "3", ("013", "3")),
        ("012", "3", "3", ("3", "3")),
        ("012", "01", "0", None),
        ("012", "01", "2", None),
        ("012", "01", "210", ("01", "10")),
    ],
)
def test_a_move_is_complete_once_the_added_replicas_are_in_sync_or_all_where_fewer_come_than_go(
    old: str, target: str, isr: str, expected: tuple[str, str] | None
) -> None:
    moving = reassign(assignment(old), ids(target))  # type: ignore[arg-type]
    unchanged = (moving, ids(isr))
    done = expected and (assignment(expected[0]), ids(expected[1]))
    assert complete(moving, ids(isr)) == (done or unchanged)  # type: ignore[arg-type]


def test_a_second_move_starts_from_the_replicas_as_they_stand() -> None:
    """KRaft keeps what the first one added, as something to be removed."""
    first = reassign(assignment("012"), ids("345"))  # type: ignore[arg-type]
    assert reassign(first, ids("016")) == assignment("0162345", "6", "2345")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("isr", "expected_isr", "unclean"), [("1234", "12", False), ("34", "1", True), ("2", "2", False)]
)
def test_the_way_back_takes_out_what_was_added(isr: str, expected_isr: str, *, unclean: bool) -> None:
    moving = Registration(ids("3412"), ids(isr), 3, adding_replicas=ids("34"), removing_replicas=ids("12"))  # type: ignore[arg-type]
    back = revert(moving)
    assert (back.assignment, back.isr, back.unclean) == (assignment("12"), ids(expected_isr), unclean)


def test_a_dropped_leader_gives_way_and_a_dropped_replica_begins_a_leader_epoch() -> None:
    """G22: broker 3 is inactive."""
    before = Registration(ids("1234"), ids("123"), 1, adding_replicas=(4,), removing_replicas=(1,))  # type: ignore[arg-type]
    change = build(before, Target(ids("1234"), {1, 2, 4}.__contains__, min_isr=1, elr_enabled=False))  # type: ignore[arg-type]
    assert change is not None
    after = change.after
    assert (after.replicas, after.isr, after.leader) == (ids("234"), ids("234"), 2)
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert (after.leader_epoch, after.partition_epoch) == (1, 1)
    kept = build(before._replace(leader=2), Target(ids("1234"), {2, 4}.__contains__, min_isr=1, elr_enabled=False))  # type: ignore[arg-type]
    assert kept is not None
    assert (kept.after.leader, kept.after.leader_epoch) == (2, 1)


def test_a_replica_that_a_move_drops_below_the_minimum_stays_eligible_by_name_as_in_kafka() -> None:
    before = Registration(ids("1234"), ids("134"), 1, adding_replicas=ids("34"))  # type: ignore[arg-type]
    aim = Target((1,), {1}.__contains__, min_isr=2, elr_enabled=True, assignment=assignment("12"))  # type: ignore[arg-type]
    change = build(before, aim)
    assert change is not None
    assert (change.after.isr, change.after.elr) == ((1,), (3, 4))
    strict = build(before, aim._replace(switches=Switches(elr_forgets_dropped_replicas=True)))
    assert strict is not None
    assert (strict.after.isr, strict.after.elr) == ((1,), ())
