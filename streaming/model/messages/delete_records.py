"""An administrator deletes the oldest records of a partition (api 21, KIP-107). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.errors import Error
    from streaming.model.messages.client_metadata import Header

ALL_COMMITTED: Final = -1


class DeleteRecordsRequest(NamedTuple):
    """Everything below ``offset`` may go; ``ALL_COMMITTED``: everything below the high watermark."""

    header: Header
    topic_partition: TopicPartition
    offset: int


class DeleteRecordsResponse(NamedTuple):
    """``low_watermark``: where the log starts now."""

    correlation_id: int
    error: Error
    low_watermark: int = -1
