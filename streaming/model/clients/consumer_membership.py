"""A member of a consumer group (KIP-848): it says what it has, and is told what it should have.

First it gives up what it should not have, then it takes over what is new, then it says so at once
(``ConsumerMembershipManager``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.clients.committing import FENCED
from streaming.model.clients.membership import Membership
from streaming.model.errors import Error
from streaming.model.messages.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_GENERATION,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from streaming.model.clients.client import Client
    from streaming.model.clients.consumer_config import ConsumerConfig
    from streaming.model.clients.membership import Assignee, Partitions


class ConsumerMembership(Membership):
    """A member; it names itself."""

    def __init__(self, client: Client, assignee: Assignee, config: ConsumerConfig, group: str) -> None:
        super().__init__(client, assignee, config, group)
        self.member_id = f"consumer-{client.node}"
        self._is_reconciling = False
        self._sends_everything = True

    @property
    def reader(self) -> tuple[str, int]:
        """It must be up to date to be told committed offsets."""
        return self.identity

    def poll(self, now: int) -> None:
        """Send a heartbeat when it is time."""
        if not self._is_asking and now >= self._act_at:
            self._beat(max(self.generation, JOIN_EPOCH))

    def _beat(self, epoch: int) -> None:
        coordinator = self._client.coordinator_of(self.coordinator_key)
        if coordinator is None:
            return
        everything = self._sends_everything or epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            self._client.network.header(),
            self.group,
            self.member_id,
            epoch,
            self._constants.max_poll_interval_ms,
            self._config.topics if everything else None,
            self._config.server_assignor if everything else None,
            self.owned,
        )
        self._is_asking, incarnation = True, self._incarnation

        def answered(now: int, response: ConsumerGroupHeartbeatResponse | None) -> None:
            if incarnation == self._incarnation:
                self._is_asking = False
                self._heartbeat_answered(now, response)

        self._client.network.send(coordinator, request, answered)

    def _heartbeat_answered(self, now: int, response: ConsumerGroupHeartbeatResponse | None) -> None:
        error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
        if response is None or error is not Error.NONE:
            self._sends_everything = True
            if error in FENCED:
                self.lose(now)
            else:
                self._fail(now, error)
            return
        self._sends_everything = False
        self.generation = response.epoch
        self._wake(now, self._constants.group_consumer_heartbeat_interval_ms)
        if not self._is_reconciling and response.partitions != self.owned:
            self._reconcile(now, response.partitions)

    def _reconcile(self, now: int, target: Partitions) -> None:
        self._is_reconciling, incarnation = True, self._incarnation

        def go_on(at: int) -> None:
            if incarnation == self._incarnation:
                self._is_reconciling = False
                added, self.owned = target - self.owned, target
                self._assignee.take_over(added)
                self._wake(at, 0)

        revoked = self.owned - target
        if revoked:
            self._assignee.give_up(now, revoked, go_on)
        else:
            go_on(now)

    def lose(self, now: int) -> None:
        """Join again under the same name."""
        self.generation = NO_GENERATION
        self._is_reconciling, self._sends_everything = False, True
        super().lose(now)

    def leave(self) -> None:
        """Tell the coordinator, and wait for nothing."""
        if self.generation > JOIN_EPOCH:
            self._incarnation += 1
            self._beat(LEAVE_EPOCH)
