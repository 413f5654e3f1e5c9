"""A leader tells where an epoch ends in its log (api 23, KIP-101, KIP-279). Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.errors import Error
from streaming.model.messages.offsets_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochPartition,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from streaming.model.storage.log import NO_EPOCH
from streaming.model.switches import Switches, Truncation

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.leadership import Leadership
    from streaming.model.messages.outbox import Outbox


class EpochEnds:
    """Answers for the partitions it leads."""

    def __init__(self, leadership: Leadership, switches: Switches, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {OffsetsForLeaderEpochRequest: self._answer}
        self._leadership = leadership
        self._names_epoch = switches.truncation is not Truncation.LEADER_EPOCH_V0
        self._outbox = outbox

    def _answer(self, _now: int, request: OffsetsForLeaderEpochRequest) -> None:
        """Follower or consumer asks where epochs end here."""
        answers = tuple(self._epoch_end(item) for item in request.partitions)
        answer = OffsetsForLeaderEpochResponse(request.header.correlation_id, self._leadership.broker, answers)
        self._outbox.send(request.header.sender, answer)

    def _epoch_end(self, asked: OffsetForLeaderEpochPartition) -> EpochEndOffset:
        partition = self._leadership.led.get(asked.topic_partition)
        error = partition.epoch_error(asked.leader_epoch) if partition else Error.NOT_LEADER_OR_FOLLOWER
        if partition is None or error is not Error.NONE:
            return EpochEndOffset(asked.topic_partition, asked.leader_epoch, error)
        epoch, end = partition.replica.log.end_offset_for(asked.epoch)
        answered_epoch = epoch if self._names_epoch else NO_EPOCH
        return EpochEndOffset(partition.key, asked.leader_epoch, epoch=answered_epoch, end_offset=end)
