"""What the active controller tells of the quorum (DescribeQuorum, KIP-836). Reads; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.broker.remote_replica import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.quorum.controller_process import ControllerProcess


_NOTHING: Final = (None, None, None)


class QuorumMember(NamedTuple):
    """One voter or observer; None where its leader does not know yet. Times are model milliseconds."""

    node: int
    is_voter: bool
    log_end_offset: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumDescription(NamedTuple):
    """Leader, epoch, high watermark; voters in the order of their ids, then observers."""

    leader: int
    epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]


def describe(now: int, process: ControllerProcess, observers: Iterable[BrokerId]) -> QuorumDescription:
    """Tell what a leader knows.

    Departs from Kafka: brokers are told of the metadata log and do not fetch it, so no position of theirs is known.
    """
    raft, leader = process.raft, -process.node
    assert raft.leader_state is not None, "only a leader knows"  # noqa: S101 - the caller asks the active controller
    members = [QuorumMember(leader, True, raft.log.end, now, now)]
    for node, remote in raft.leader_state.remotes.items():
        has_fetched = remote.log_end_offset != UNKNOWN_OFFSET
        progress = (remote.log_end_offset, remote.last_fetch_ms, remote.last_caught_up_ms) if has_fetched else _NOTHING
        members.append(QuorumMember(-node, True, *progress))
    watching = (QuorumMember(broker, False, *_NOTHING) for broker in sorted(observers))
    return QuorumDescription(leader, raft.epoch, raft.high_watermark, (*sorted(members), *watching))
