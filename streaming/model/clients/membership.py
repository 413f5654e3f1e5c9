"""What a member of a group is to its consumer, whichever protocol it speaks (``AbstractCoordinator``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streaming.model.errors import Error
from streaming.model.messages.client_metadata import CONSUMER_OFFSETS, CoordinatorKey, WakeUp
from streaming.model.messages.groups import NO_GENERATION, NO_MEMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.clients.client import Client
    from streaming.model.clients.consumer_config import ConsumerConfig

    Partitions = frozenset[TopicPartition]


class Assignee(Protocol):
    """Who reads what a member is assigned."""

    def take_over(self, keys: Iterable[TopicPartition]) -> None:
        """Read these, too, from where the group stopped."""

    def give_up(self, now: int, keys: Partitions, then: Callable[[int], None]) -> None:
        """Read these no more, commit how far they were read, then call ``then``."""

    def drop(self, keys: Partitions) -> None:
        """Read these no more; somebody else may have them already."""


class Membership:
    """A member of a group. Subclasses say in :meth:`poll` what they tell the coordinator when.

    Attributes:
        member_id: its name; "" before the coordinator gave it one.
        generation: newest generation, or member epoch, that it was told; -1 outside.
        owned: what it reads.
    """

    def __init__(self, client: Client, assignee: Assignee, config: ConsumerConfig, group: str) -> None:
        self.group = group
        self.coordinator_key = CoordinatorKey(CONSUMER_OFFSETS, group)
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.owned: Partitions = frozenset()
        self._client = client
        self._assignee = assignee
        self._config = config
        self._constants = client.constants
        self._is_asking = False
        self._act_at = 0
        self._incarnation = 0  # an answer to something that was asked in an earlier incarnation is void

    @property
    def identity(self) -> tuple[str, int]:
        """By which its commits are fenced."""
        return self.member_id, self.generation

    @property
    def reader(self) -> tuple[str, int]:
        """As whom it asks for committed offsets; the classic protocol does not care."""
        return NO_MEMBER, NO_GENERATION

    def poll(self, now: int) -> None:
        """Say what is to be said now."""
        raise NotImplementedError

    def leave(self) -> None:
        """The application ends."""
        raise NotImplementedError

    def lose(self, now: int) -> None:
        """The coordinator has gone on without it: whatever it read is somebody else's now; join anew."""
        self._incarnation += 1
        lost, self.owned = self.owned, frozenset()
        self._assignee.drop(lost)
        self._is_asking = False
        self._wake(now, 0)

    def _wake(self, now: int, delay_ms: int) -> None:
        self._act_at = now + delay_ms
        self._client.outbox.after(delay_ms, WakeUp())

    def _fail(self, now: int, error: Error) -> None:
        """Try again after a wait, with another coordinator if this one is none any more."""
        if error in {Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE}:
            self._client.forget_coordinator(self.coordinator_key)
        self._wake(now, self._constants.retry_backoff_ms)
