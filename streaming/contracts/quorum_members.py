"""Members of the metadata quorum by directory id (KIP-853): one node may be in it twice. Pure.

A voter is a node with the directory that it had when it was made a voter. One whose disk is replaced, or wiped, comes
back with another directory: as an observer, and its vote stays with the directory that is gone. Until that is removed
the quorum has a voter that never catches up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

T = TypeVar("T")
QUORUM_BEHIND: Final = 10_000_000
"""A voter fetches twice a second: one that lacks records for so many microseconds is down, hangs, or is cut off."""


FETCHING: Final = 1_500_000
"""A member fetches twice a second; no node is stopped, and started on another disk, within so many microseconds."""


class Member(NamedTuple):
    """Identity of a member, and what else distinguishes it.

    Attributes:
        node: a controller or a broker, of whichever cluster.
        directory_id: of its metadata log; None where it is not reported.
        is_voter: otherwise it is an observer.
        at: when it was reported; the members of one answer have one time.
        caught_up_at: up to when it has the log, by the leader's clock, in microseconds; None while it is not known to.
    """

    node: Hashable
    directory_id: str | None
    is_voter: bool
    at: int
    caught_up_at: int | None


def by_node(rows: Iterable[T], member: Callable[[T], Member]) -> dict[Any, T]:
    """Return one row of each node: of its newest answer, and of two in that the voter's."""
    chosen: dict[Any, T] = {}
    for row in rows:
        each = member(row)
        before = chosen.get(each.node)
        if before is None or (each.at, each.is_voter) > _rank(member(before)):
            chosen[each.node] = row
    return chosen


def replaced(rows: Iterable[T], member: Callable[[T], Member]) -> dict[Any, tuple[T, T]]:
    """Return each voter whose directory is gone, by node, with the observer that runs in its place.

    While the voter keeps up its directory is there, and another process has the same id: its vote must not be removed.
    The other way round, of a vote that was taken away, the leader still lists the old directory for minutes.
    """
    listed = list(rows)
    voters = {node: row for node, row in by_node(listed, member).items() if member(row).is_voter}
    return {
        observer.node: (voters[observer.node], row)
        for row in listed
        for observer in [member(row)]
        if observer.node in voters and _is_in_place_of(observer, member(voters[observer.node]))
    }


def doubled(rows: Iterable[T], member: Callable[[T], Member]) -> dict[Any, tuple[T, ...]]:
    """Return the nodes as which several processes fetch the metadata log at once, each with a disk of its own.

    A copied configuration does that, and a broker with the id of a controller. Processes that share a directory id, or
    voters without one (a quorum of fixed voters), look like one.
    """
    answers: dict[tuple[Any, int], dict[str, T]] = {}
    newest: dict[int, int] = {}
    listed = [(row, member(row)) for row in rows]
    for _, each in listed:
        newest[each.at] = max(newest.get(each.at, 0), each.caught_up_at or 0)
    for row, each in listed:
        is_fetching = each.caught_up_at is not None and newest[each.at] - each.caught_up_at < FETCHING
        if is_fetching and each.directory_id is not None:
            answers.setdefault((each.node, each.at), {})[each.directory_id] = row
    last = {node: max(at for other, at in answers if other == node) for node, _ in answers}
    return {node: tuple(each.values()) for (node, at), each in answers.items() if len(each) > 1 and at == last[node]}


def _is_in_place_of(observer: Member, voter: Member) -> bool:
    is_other = not observer.is_voter and observer.at == voter.at and observer.directory_id != voter.directory_id
    return is_other and (observer.caught_up_at or 0) > (voter.caught_up_at or -QUORUM_BEHIND) + QUORUM_BEHIND


def _rank(member: Member) -> tuple[int, bool]:
    return member.at, member.is_voter


def replaced_sentence(node: object, old: str | None, new: str | None) -> str:
    """Say what became of a voter, and how it votes again.

    >>> replaced_sentence(102, "old", "new")[:73]
    'the directory old of voter 102 is gone: it runs with new, as an observer,'
    """
    tool = "kafka-metadata-quorum.sh --bootstrap-server BROKER"
    return (
        f"the directory {old or '?'} of voter {node} is gone: it runs with {new or '?'}, as an observer, and does not "
        f"vote. Remove the vote, then give it one: {tool} remove-controller --controller-id {node} "
        f"--controller-directory-id {old or '?'}; and with the properties of controller {node}: "
        f"kafka-metadata-quorum.sh --command-config controller.properties --bootstrap-server BROKER add-controller"
    )


def doubled_sentence(node: object, directories: Iterable[tuple[str | None, bool]]) -> str:
    """Say that several processes run with one node id; of each its directory, and whether it is a voter.

    >>> doubled_sentence(102, [("a", True), ("b", False)])[:95]
    'two processes run with node.id 102: with directory a as a voter, with directory b as an observe'
    """
    listed = [
        f"with directory {directory} as {'a voter' if is_voter else 'an observer'}"
        for directory, is_voter in directories
    ]
    number = {2: "two"}.get(len(listed), str(len(listed)))
    return (
        f"{number} processes run with node.id {node}: {', '.join(listed)}, and each follows the metadata log now; stop "
        "the wrong one, or give it a node.id of its own, and a disk that is formatted with it"
    )
