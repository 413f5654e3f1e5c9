"""A node that is in the metadata quorum twice: as a voter with the directory that is gone, and as an observer."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.quorum_members import (
    FETCHING,
    Member,
    by_node,
    doubled,
    doubled_sentence,
    replaced,
    replaced_sentence,
)
from streaming.contracts.sampled_conditions import of_quorum

OLD, NEW, LATER = "oldDirectoryOf102", "newDirectoryOf102", 40_000_000


def row(node: int, directory: str | None = None, **fields: Any) -> dict[str, Any]:
    told = {"cluster_id": "c", "cluster": "main", "is_voter": True, "controller": 101, "collected_at": LATER}
    return {**told, "node": node, "directory_id": directory, "last_caught_up_at": LATER, **fields}


def member(each: dict[str, Any]) -> Member:
    place = (each["node"], each["directory_id"], each["is_voter"], each["collected_at"])
    return Member(*place, each["last_caught_up_at"])


GONE = row(102, OLD, last_caught_up_at=LATER - 46_000_000)
ALIVE = row(102, NEW, is_voter=False)


def behind(*rows: dict[str, Any]) -> dict[str, bool | None]:
    return {finding.key.subject: finding.is_wrong for finding in of_quorum(rows)}


@pytest.mark.parametrize("turned", [1, -1])
def test_the_voter_counts_and_the_observer_in_its_place_is_named(turned: int) -> None:
    rows = [row(101, "d101"), GONE, ALIVE, row(1, "d1", is_voter=False)][::turned]
    assert by_node(rows, member)[102] is GONE
    assert replaced(rows, member) == {102: (GONE, ALIVE)}
    assert behind(*rows) == {"101": False, "102": True, "1": False}
    said = replaced_sentence(102, OLD, NEW)
    assert f"remove-controller --controller-id 102 --controller-directory-id {OLD};" in said
    assert said.endswith(" add-controller")


def test_a_voter_whose_directory_is_gone_is_behind_whatever_a_new_leader_knows_of_it() -> None:
    unheard = {**GONE, "last_caught_up_at": None}
    assert behind(row(101), unheard) == {"101": False, "102": None}
    assert behind(row(101), unheard, ALIVE) == {"101": False, "102": True}


@pytest.mark.parametrize("ahead", [0, 3_600_000_000, -3_600_000_000])
def test_a_voter_is_behind_for_as_long_as_the_leader_says_whatever_the_leaders_clock(ahead: int) -> None:
    last = {"last_caught_up_at": LATER + ahead - 46_000_000}
    rows = row(101, last_caught_up_at=LATER + ahead), row(102, **last)
    assert {each.key.subject: each.since for each in of_quorum(rows)}["102"] == LATER - 46_000_000


def test_rows_of_an_older_answer_say_nothing_of_a_node() -> None:
    again = row(102, NEW, collected_at=LATER + 1)
    rows = [row(101, collected_at=LATER + 1), GONE, again]
    assert by_node(rows, member)[102] is again
    assert replaced(rows, member) == replaced([{**again, "is_voter": False}, GONE], member) == {}
    assert behind(*rows)["102"] is False


def test_a_directory_whose_vote_was_taken_away_is_not_in_place_of_the_new_one() -> None:
    voter, listed_still = {**ALIVE, "is_voter": True}, {**GONE, "is_voter": False}
    assert replaced([row(101), listed_still, voter], member) == {}
    assert behind(row(101), listed_still, voter)["102"] is False
    assert replaced([row(101), GONE, {**ALIVE, "last_caught_up_at": None}], member) == {}, "it may be gone itself"


def test_a_voter_that_keeps_up_is_not_gone_although_another_process_has_its_id() -> None:
    """As the old machine of a controller that still runs, or a broker with the id of a controller."""
    alive = {**GONE, "last_caught_up_at": LATER - 400_000}
    assert replaced([row(101), alive, ALIVE], member) == {}
    assert behind(row(101), alive, ALIVE)["102"] is False
    assert doubled([row(101), alive, ALIVE], member) == {102: (alive, ALIVE)}
    said = doubled_sentence(102, [(each["directory_id"], each["is_voter"]) for each in (alive, ALIVE)])
    assert said.startswith(f"two processes run with node.id 102: with directory {OLD} as a voter, with directory {NEW}")


def test_a_node_on_another_disk_is_one_process_while_the_old_directory_is_only_listed() -> None:
    at = LATER - FETCHING
    for others in ({"last_caught_up_at": at}, {"last_caught_up_at": None}, {"collected_at": LATER - 1}):
        assert doubled([row(101), {**GONE, "last_caught_up_at": LATER, **others}, ALIVE], member) == {}
    assert doubled([row(101), row(102, None), ALIVE], member) == {}, "a voter of fixed voters has no directory id"
    assert doubled([row(101), row(102, NEW), ALIVE], member) == {}, "as it becomes a voter"


def test_without_directory_ids_nothing_is_gone() -> None:
    one, other = (row(102, None, is_voter=is_voter) for is_voter in (True, False))
    assert replaced([one, other], member) == {}
