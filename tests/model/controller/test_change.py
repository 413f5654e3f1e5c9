"""Steps of a partition as Kafka's own tests of PartitionChangeBuilder assert them; more of them are transcripts."""

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


def test_a_replica_that_a_move_drops_below_the_minimum_stays_eligible_by_name_as_in_kafka() -> None:
    before = Registration(ids("1234"), ids("134"), 1, adding_replicas=ids("34"))  # type: ignore[arg-type]
    aim = Target((1,), {1}.__contains__, min_isr=2, elr_enabled=True, assignment=assignment("12"))  # type: ignore[arg-type]
    change = build(before, aim)
    assert change is not None
    assert (change.after.isr, change.after.elr) == ((1,), (3, 4))
    strict = build(before, aim._replace(switches=Switches(elr_forgets_dropped_replicas=True)))
    assert strict is not None
    assert (strict.after.isr, strict.after.elr) == ((1,), ())


def test_who_leaves_below_the_minimum_becomes_eligible() -> None:
    """G14, where two leave at once."""
    aim = Target(ids("12"), {1, 2}.__contains__, min_isr=3, elr_enabled=True)  # type: ignore[arg-type]
    change = build(Registration(ids("1234"), ids("1234"), 1), aim)  # type: ignore[arg-type]
    assert change is not None
    assert (change.after.isr, change.after.elr, change.after.leader) == ((1, 2), (3, 4), 1)


def test_without_anybody_the_last_leader_is_remembered() -> None:
    """G17, where all leave at once."""
    aim = Target((), set[int]().__contains__, min_isr=3, elr_enabled=True)
    change = build(Registration(ids("1234"), ids("1234"), 1), aim)  # type: ignore[arg-type]
    assert change is not None
    assert (change.after.leader, change.after.elr, change.after.last_known_elr) == (-1, (1, 2, 3, 4), (1,))


def test_a_step_without_a_difference_is_none() -> None:
    aim = Target(ids("12"), {1, 2}.__contains__, min_isr=1, elr_enabled=True)  # type: ignore[arg-type]
    assert build(Registration(ids("12"), ids("12"), 1), aim) is None  # type: ignore[arg-type]
