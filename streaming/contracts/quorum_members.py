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
