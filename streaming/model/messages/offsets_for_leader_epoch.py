"""Where does an epoch end at its leader (api 23, KIP-101, KIP-279, KIP-320)? Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.errors import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.messages.client_metadata import Header


class OffsetForLeaderEpochPartition(NamedTuple):
    """``epoch``: the one in question. ``leader_epoch``: the one that the asker knows."""

    topic_partition: TopicPartition
    leader_epoch: int
    epoch: int


class OffsetsForLeaderEpochRequest(NamedTuple):
    """A follower asks before it fetches. A consumer may, to find out that records it read were truncated."""

    header: Header
    partitions: tuple[OffsetForLeaderEpochPartition, ...]


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the one in question, and its end offset; -1 each if undefined.

    Version 0 (KIP-101) told the end offset without the epoch: ``epoch`` is -1.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    error: Error = Error.NONE
    epoch: int = -1
    end_offset: int = -1


class OffsetsForLeaderEpochResponse(NamedTuple):
    """A leader's answer."""

    correlation_id: int
    leader: BrokerId
    partitions: tuple[EpochEndOffset, ...]
