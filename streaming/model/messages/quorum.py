"""Controllers among themselves (apis 1, 52, 53 and 54 on ``__cluster_metadata``; KIP-595, KIP-996). Values only.

Every message carries the sender's epoch, so that a voter that is behind learns of the newer one from any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId


class Entry(NamedTuple):
    """A batch at ``[base_offset, end_offset)``; Raft does not look at what it carries."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: Any


class VoteRequest(NamedTuple):
    """A voter asks to be elected; with ``pre_vote`` it only asks whether it would be, in its current epoch."""

    candidate: BrokerId
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool


class VoteResponse(NamedTuple):
    """The answer to one vote; ``leader`` is who leads ``epoch`` as far as the voter knows."""

    voter: BrokerId
    epoch: int
    leader: BrokerId | None
    pre_vote: bool
    granted: bool


class BeginQuorumEpochRequest(NamedTuple):
    """A leader makes itself known; followers pull, so it has no other way to be found."""

    leader: BrokerId
    epoch: int


class BeginQuorumEpochResponse(NamedTuple):
    """To a leader whose epoch is over. Departs from Kafka: a leader that is right gets no answer but the fetch."""

    leader: BrokerId | None
    epoch: int


class EndQuorumEpochRequest(NamedTuple):
    """A leader resigns; ``successors`` begins with the voter that should try first."""

    leader: BrokerId
    epoch: int
    successors: tuple[BrokerId, ...]


class QuorumFetchRequest(NamedTuple):
    """A follower asks for what comes after ``fetch_offset``; that it has everything before is its acknowledgement."""

    replica: BrokerId
    epoch: int
    request_id: int
    fetch_offset: int
    last_fetched_epoch: int


class QuorumFetchResponse(NamedTuple):
    """The leader's batches, or where the logs part. ``leader`` is None if the node that was asked leads nothing."""

    leader: BrokerId | None
    epoch: int
    request_id: int
    entries: tuple[Entry, ...] = ()
    diverging: tuple[int, int] | None = None
    high_watermark: int = 0
    log_start: int = 0


class ControllerRegistrationRequest(NamedTuple):
    """A controller process tells the active one that it runs (api 70, KIP-919)."""

    controller: BrokerId
    incarnation_id: str
