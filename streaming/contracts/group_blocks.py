"""Blocks of groups: what one broker reports of the groups that it coordinates travels as a few observations.

Three hundred groups in a hundred partitions each are 30,000 samples a round; see ``sample_blocks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from streaming.contracts.identifiers import Micros, Offset, TopicId
from streaming.contracts.observations import Channel, Observation, require
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorBlock(SamplesBlock):
    """Samples of groups, from the broker that coordinates them: all that it has at this moment, in one block or more.

    One without samples says that there are none (any more).
    """

    format: ClassVar[int] = 4
    may_be_empty: ClassVar[bool] = True
    channel: ClassVar[Channel] = Channel.OFFSETS

    def shared(self) -> dict[str, Any]:
        """Return the fields that all the samples have in common."""
        shared = SamplesBlock.shared(self)
        shared["coordinator"] = shared.pop("broker")
        return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupsObserved(CoordinatorBlock):
    """The groups of one coordinator; see :class:`samples.GroupObserved`."""

    kind: ClassVar[str] = "broker_groups"
    sample: ClassVar[type[Observation]] = GroupObserved

    group_by_sample: tuple[str, ...]
    group_protocol_by_sample: tuple[str, ...]
    group_state_by_sample: tuple[str, ...]
    members_by_sample: tuple[int, ...] | None = None
    assignor_by_sample: tuple[str, ...] | None = None
    last_progress_at_by_sample: tuple[Micros, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not parallel, and a group without a name."""
        Observation.__post_init__(self)
        self._require_parallel(len(self.group_by_sample))
        require(all(self.group_by_sample), "group is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupOffsetsObserved(CoordinatorBlock):
    """Committed offsets of the groups of one coordinator; see :class:`samples.GroupOffsetsObserved`.

    The samples stand group by group, and within a group topic by topic. The first arrays have one value per group and
    topic; ``partition_counts`` says how many of the samples are of each.
    """

    kind: ClassVar[str] = "broker_group_offsets"
    sample: ClassVar[type[Observation]] = GroupOffsetsObserved

    groups: tuple[str, ...]
    group_protocols: tuple[str, ...]
    group_states: tuple[str, ...]
    member_counts: tuple[int, ...] | None = None
    topic_ids: tuple[TopicId, ...]
    topics: tuple[str, ...]
    partition_counts: tuple[int, ...]
    partition_by_sample: tuple[int, ...]
    member_by_sample: tuple[str, ...] | None = None
    committed_offset_by_sample: tuple[Offset, ...] | None = None
    lag_by_sample: tuple[Offset, ...] | None = None
    lag_seconds_by_sample: tuple[float, ...] | None = None
    log_start_offset_by_sample: tuple[Offset, ...] | None = None
    last_stable_offset_by_sample: tuple[Offset, ...] | None = None
    high_watermark_by_sample: tuple[Offset, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not parallel, and negative offsets."""
        Observation.__post_init__(self)
        lengths = {len(values) for values in (*self._by_topic().values(), self.partition_counts)}
        require(len(lengths) == 1, "groups and topics differ in length")
        require(all(self.groups) and all(self.topic_ids) and all(self.topics), "group, topic_id or topic is empty")
        require(all(count > 0 for count in self.partition_counts), "a topic has no samples")
        self._require_parallel(sum(self.partition_counts))
        for name, values in self._arrays().items():
            require(name == "member" or min(values, default=0) >= 0, f"{name} is negative")

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the samples as columns."""
        counts = self.partition_counts
        by_topic = {
            name: [*chain.from_iterable(map(repeat, values, counts))] for name, values in self._by_topic().items()
        }
        return {**by_topic, **self._arrays()}

    def _by_topic(self) -> dict[str, Sequence[Any]]:
        """Return what is reported of every group and topic: field of a sample to one value per group and topic."""
        arrays: dict[str, Sequence[Any]] = {
            "group": self.groups,
            "group_protocol": self.group_protocols,
            "group_state": self.group_states,
            "topic_id": self.topic_ids,
            "topic": self.topics,
        }
        return arrays if self.member_counts is None else {**arrays, "members": self.member_counts}
