"""What a coordinator writes into ``__consumer_offsets``: keys and values, as many as a group has things to remember.

A value of None under the same key takes it back (a tombstone). Departs from Kafka: a group's target assignment is one
record, not one a member, and what a member wants and what it has are one record, not two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicId, TopicPartition
    from streaming.model.coordinators.consumer_group import Member
    from streaming.model.messages.groups import CommittedOffset

Share = tuple["TopicPartition", ...]


class OffsetCommitValue(NamedTuple):
    """A committed offset, and when it was committed."""

    group: str
    topic_partition: TopicPartition
    committed: CommittedOffset
    commit_ms: int

    @property
    def key(self) -> str:
        """Where it stands."""
        return offset_key(self.group, self.topic_partition)


class ClassicMemberValue(NamedTuple):
    """A member of a generation, and its share."""

    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    topics: frozenset[TopicId]
    share: Share


class ClassicGroupValue(NamedTuple):
    """A generation (``GroupMetadataValue``); without members the group is empty."""

    group: str
    generation: int
    assignor: str
    leader: str
    members: tuple[ClassicMemberValue, ...]
    since_ms: int

    @property
    def key(self) -> str:
        """Where it stands."""
        return group_key(self.group)


class ConsumerGroupValue(NamedTuple):
    """Group epoch, and the target that was computed in which epoch.

    ``counts``: how many partitions the topics had then. ``since_ms``: when it changed last.
    """

    group: str
    epoch: int
    counts: tuple[tuple[TopicId, int], ...]
    target_epoch: int
    target: tuple[tuple[str, frozenset[TopicPartition]], ...]
    since_ms: int

    @property
    def key(self) -> str:
        """Where it stands."""
        return group_key(self.group)


class ConsumerMemberValue(NamedTuple):
    """A member of a consumer group."""

    group: str
    member: Member

    @property
    def key(self) -> str:
        """Where it stands."""
        return member_key(self.group, self.member.member_id)


Value = OffsetCommitValue | ClassicGroupValue | ConsumerGroupValue | ConsumerMemberValue


def offset_key(group: str, partition: TopicPartition) -> str:
    """Name a committed offset."""
    return f"{group}/offset/{partition.topic_id}-{partition.partition}"


def group_key(group: str) -> str:
    """Name a group."""
    return f"{group}/group"


def member_key(group: str, member_id: str) -> str:
    """Name a member of a consumer group."""
    return f"{group}/member/{member_id}"
