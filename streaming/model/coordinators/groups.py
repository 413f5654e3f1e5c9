"""The coordinator of groups: whoever leads the partition of ``__consumer_offsets`` that a group's name hashes to.

What it knows, it has from that partition, so another broker goes on where it stopped. Both protocols stand in files of
their own, and so do committed offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.coordinators.classic_protocol import ClassicProtocol
from streaming.model.coordinators.consumer_protocol import ConsumerProtocol
from streaming.model.coordinators.group_log import GroupLog
from streaming.model.coordinators.group_offsets import GroupOffsets
from streaming.model.coordinators.member_sessions import MemberSessions
from streaming.model.messages.groups import OffsetExpirationDue, SessionDue

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.metadata_cache import MetadataCache
    from streaming.model.broker.produce import Produce
    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox
    from streaming.model.registrations import TopicRegistration


class GroupCoordinator:
    """The groups that this broker coordinates.

    Attributes:
        log: what it knows.
    """

    def __init__(self, produce: Produce, metadata_cache: MetadataCache, constants: Constants, outbox: Outbox) -> None:
        self.log = GroupLog(produce, constants)
        self._sessions = MemberSessions(outbox)
        self._classic = ClassicProtocol(self.log, self._sessions, constants, outbox)
        self._consumer = ConsumerProtocol(self.log, self._sessions, metadata_cache, constants, outbox)
        self._offsets = GroupOffsets(self.log, constants, outbox)
        self._check_interval_ms = constants.offsets_retention_check_interval_ms
        self._outbox = outbox
        self._looks_for_old = False
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            **self._classic.handlers,
            **self._consumer.handlers,
            **self._offsets.handlers,
            SessionDue: self._session_due,
            OffsetExpirationDue: self._expire_offsets,
        }

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition of ``__consumer_offsets``: read it, and listen to its groups' members."""
        if self.log.is_loaded(partition):
            return
        self.resigned(partition.key)
        for group in self.log.load(partition, topic.partitions).groups.values():
            self._classic.elected(now, group)
            self._consumer.elected(now, group)
        if not self._looks_for_old:
            self._looks_for_old = True
            self._outbox.after(self._check_interval_ms, OffsetExpirationDue())

    def resigned(self, key: TopicPartition) -> None:
        """Another broker coordinates what this one did."""
        loaded = self.log.unload(key)
        for group in loaded.groups.values() if loaded else ():
            self._classic.resigned(group)
            self._consumer.resigned(group)

    def _session_due(self, now: int, timer: SessionDue) -> None:
        if not self._sessions.expires(now, timer):
            return
        group = self.log.find(timer.group)
        if group is not None:
            self._classic.expired(now, group, timer.member_id)
            self._consumer.expired(now, group, timer.member_id)

    def _expire_offsets(self, now: int, timer: OffsetExpirationDue) -> None:
        self._looks_for_old = not self.log.is_empty
        if self._looks_for_old:
            self._outbox.after(self._check_interval_ms, timer)
            self._offsets.expire(now)
