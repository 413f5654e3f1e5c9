"""Members of a group: of the classic protocol, where one member assigns, and of the consumer protocol (KIP-848)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from streaming.contracts.identifiers import TopicId
from streaming.model.clients.committing import FENCED, Membership
from streaming.model.constants import Error
from streaming.model.coordinators.assignors import CLASSIC_ASSIGNORS, Subscription
from streaming.model.messages.coordinators import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.clients.client import Client
    from streaming.model.clients.committing import Assignee, Partitions
    from streaming.model.clients.positions import ConsumerConfig

# The coordinator answers JoinGroup when every member has joined; the client waits a little longer than that may take.
_JOIN_GRACE_MS = 5_000


class MemberStage(Enum):
    """``AbstractCoordinator.MemberState``."""

    UNJOINED = auto()
    PREPARING_REBALANCE = auto()
    """It has asked to join."""
    COMPLETING_REBALANCE = auto()
    """It waits for its share."""
    STABLE = auto()


class ClassicMembership(Membership):
    """A member."""

    stage = MemberStage.UNJOINED
    _joined: JoinGroupResponse | None = None  # as leader, until it knows how many partitions there are
    _counts: dict[TopicId, int] | None = None  # as leader, what the shares were computed with
    _share: tuple[TopicPartition, ...] = ()
    _refresh_at = 0

    def poll(self, now: int) -> None:
        """Join, hand shares out, or show that it is alive."""
        if self._joined is not None:
            self._assign(now, self._joined)
        if self._is_asking or now < self._act_at:
            return
        if self.stage is MemberStage.UNJOINED:
            self._rejoin(now)
        elif self.stage is MemberStage.STABLE:
            self._watch_topics(now)
            request = HeartbeatRequest(self._client.network.header(), self.group, self.generation, self.member_id)
            self._ask(request, self._heartbeat_answered)

    def _ask(self, request: Any, then: Callable[[int, Any], None], timeout_ms: int = 0) -> None:  # noqa: ANN401 - any request to the coordinator
        coordinator = self._client.coordinator_of(self.coordinator_key)
        if coordinator is None:
            return
        self._is_asking, incarnation = True, self._incarnation

        def answered(now: int, response: Any) -> None:  # noqa: ANN401 - its answer
            if incarnation == self._incarnation:
                self._is_asking = False
                then(now, response)

        self._client.network.send(coordinator, request, answered, timeout_ms)

    # -------------------------------------------------------------- joining

    def _rejoin(self, now: int) -> None:
        """Eager members give everything up before they join; cooperative ones keep it."""
        if self._client.coordinator_of(self.coordinator_key) is None:
            return
        if self._config.is_cooperative or not self.owned:
            self._join(now)
            return
        given_up, self.owned = self.owned, frozenset()
        self._is_asking, incarnation = True, self._incarnation

        def go_on(at: int) -> None:
            if incarnation == self._incarnation:
                self._is_asking = False
                self._join(at)

        self._assignee.give_up(now, given_up, go_on)

    def _join(self, _now: int) -> None:
        patience = self._constants.max_poll_interval_ms
        request = JoinGroupRequest(
            self._client.network.header(),
            self.group,
            self.member_id,
            self._constants.group_session_timeout_ms,
            patience,
            self._config.assignors,
            self._config.topics,
            self._share,
            self.generation,
        )
        self.stage = MemberStage.PREPARING_REBALANCE
        self._ask(request, self._answered_join, patience + _JOIN_GRACE_MS)
        if not self._is_asking:  # no coordinator to ask yet
            self.stage = MemberStage.UNJOINED

    def _answered_join(self, now: int, response: JoinGroupResponse | None) -> None:
        error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
        if response is not None and error is Error.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join(now)
        elif response is None or error is not Error.NONE:
            self._refused(now, error)
        else:
            self.stage, self.generation = MemberStage.COMPLETING_REBALANCE, response.generation
            self._counts = None
            if response.leader == self.member_id:
                self._joined = response
                self._assign(now, response)
            else:
                self._sync(())

    def _refused(self, now: int, error: Error) -> None:
        self.stage = MemberStage.UNJOINED
        if error in FENCED:
            self.lose(now)
        else:
            self._fail(now, error)

    # -------------------------------------------------------------- sharing out

    def _assign(self, _now: int, response: JoinGroupResponse) -> None:
        """Leader computes the shares, as soon as it knows the partitions of all that is subscribed to."""
        topics = frozenset[TopicId]().union(*(member.topics for member in response.members))
        counts = {topic: self._client.partitions_of(topic) for topic in topics}
        partition_counts = {topic: count for topic, count in counts.items() if count is not None}
        if len(partition_counts) < len(counts):
            return
        members = [
            Subscription(member.member_id, member.topics, member.owned, member.owned_generation)
            for member in response.members
        ]
        self._joined, self._counts = None, partition_counts
        self._sync(tuple(CLASSIC_ASSIGNORS[response.assignor](partition_counts, members).items()))

    def _sync(self, shares: tuple[tuple[str, tuple[TopicPartition, ...]], ...]) -> None:
        header = self._client.network.header()
        self._ask(SyncGroupRequest(header, self.group, self.generation, self.member_id, shares), self._synced)
        if not self._is_asking:
            self.stage = MemberStage.UNJOINED

    def _synced(self, now: int, response: SyncGroupResponse | None) -> None:
        error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
        if response is None or error is not Error.NONE:
            self._refused(now, error)
            return
        self.stage = MemberStage.STABLE
        self._wake(now, self._constants.group_heartbeat_interval_ms)
        self._share = response.partitions
        self._refresh_at = now + self._constants.metadata_max_age_ms
        share, owned = frozenset(response.partitions), self.owned
        self.owned = share
        self._assignee.take_over(share - owned)
        if owned - share:  # only a cooperative member still has something: the others get it when it joins again
            self._is_asking, incarnation = True, self._incarnation

            def go_on(at: int) -> None:
                if incarnation == self._incarnation:
                    self._is_asking, self.stage = False, MemberStage.UNJOINED
                    self._wake(at, 0)

            self._assignee.give_up(now, owned - share, go_on)

    # -------------------------------------------------------------- staying and leaving

    def _heartbeat_answered(self, now: int, response: HeartbeatResponse | None) -> None:
        error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
        if error is Error.NONE:
            self._wake(now, self._constants.group_heartbeat_interval_ms)
        elif error is Error.REBALANCE_IN_PROGRESS:
            self.stage = MemberStage.UNJOINED
            self._wake(now, 0)
        elif error in FENCED:
            self.lose(now)
        else:
            self._fail(now, error)

    def _watch_topics(self, now: int) -> None:
        """Leader looks now and then whether a topic has more partitions: then every member has to join again."""
        if self._counts is None:
            return
        if now >= self._refresh_at:
            self._refresh_at = now + self._constants.metadata_max_age_ms
            self._client.refresh(self._counts)
        if any(self._client.partitions_of(topic) != count for topic, count in self._counts.items()):
            self._counts = None
            self.stage = MemberStage.UNJOINED
            self._wake(now, 0)

    def lose(self, now: int) -> None:
        """Join as a new member."""
        self.stage = MemberStage.UNJOINED
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self._joined, self._counts, self._share = None, None, ()
        super().lose(now)

    def leave(self) -> None:
        """Tell the coordinator, and wait for nothing."""
        if self.member_id != NO_MEMBER:
            self._ask(
                LeaveGroupRequest(self._client.network.header(), self.group, self.member_id),
                lambda _now, _message: None,
            )


# A member of a consumer group (KIP-848): it says what it has, and is told what it should have.
#
# First it gives up what it should not have, then it takes over what is new, then it says so at once
# (``ConsumerMembershipManager``).


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
