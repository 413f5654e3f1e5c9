"""How the ZooKeeper controller changes leaders and ISRs (``PartitionStateMachine``, ``ReplicaStateMachine``).

Everything here is a :data:`Steps`: it yields operations for ZooKeeper and goes on with their results, as the thread of
the real controller waits for them. A state is read, decided upon, and written if nobody wrote it in between; whoever
lost the race begins again. Every write begins a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicPartition
from streaming.model.messages.zookeeper import Code, Create, GetData, Operation, Result, SetData
from streaming.model.zookeeper import election
from streaming.model.zookeeper.layout import StateData, state_path
from streaming.model.zookeeper.partition_states import PartitionState

if TYPE_CHECKING:
    from streaming.model.switches import Switches
    from streaming.model.zookeeper.announcements import Announcements
    from streaming.model.zookeeper.context import Context

T = TypeVar("T")
Waiting = Generator[tuple[Operation, ...], tuple[Result, ...], T]
Steps = Waiting[None]
Decision = Callable[[TopicPartition, StateData], StateData | None]


class LeadersAndIsrs:
    """The steps of partitions within one controller epoch.

    Args:
        context: what the controller remembers.
        announcements: how it tells the brokers.
        switches: in which order brokers are preferred.
    """

    def __init__(self, context: Context, announcements: Announcements, switches: Switches) -> None:
        self._context = context
        self._announcements = announcements
        self._first_registered_leads = switches.first_registered_leads

    def bring_online(self, cause: Cause) -> Steps:
        """Controller tries to find a leader for every partition that is new or offline."""
        waiting = list(self._context.waiting)
        new = [key for key in waiting if self._context.state(key) is PartitionState.NEW]
        offline = [key for key in waiting if self._context.state(key) is PartitionState.OFFLINE]
        yield from self._begin(new)
        yield from self.elect(offline, election.offline, cause)

    def _begin(self, keys: Iterable[TopicPartition]) -> Steps:
        """New partitions: the first live replica leads, and all live replicas are in sync."""
        creations = []
        for key in keys:
            isr = tuple(broker for broker in self._context.replicas(key) if self._context.is_live(broker))
            if isr:
                state = StateData(isr[0], 0, isr, self._context.epoch, Cause.CREATED)
                creations.append((key, Create(state_path(key), state)))
        results = yield tuple(creation for _, creation in creations)
        for (key, _), result in zip(creations, results, strict=True):
            if result.znode is not None:
                self._context.learn(key, result.znode)
                self._context.enter(key, PartitionState.ONLINE)
        self._announcements.leader_and_isr(key for key, _ in creations)

    def elect(self, keys: Collection[TopicPartition], strategy: election.Strategy, cause: Cause) -> Steps:
        """Controller elects leaders; a partition for which the strategy finds nobody stays as it is."""

        def decide(key: TopicPartition, state: StateData) -> StateData | None:
            elected = strategy(self._question(key, state.isr, strategy))
            if elected is None:
                return None
            why = Cause.UNCLEAN_ELECTION if elected.is_unclean else cause
            return StateData(elected.leader, state.leader_epoch + 1, elected.isr, self._context.epoch, why)

        written = yield from self._rewrite(keys, decide)
        for key in written:
            self._context.enter(key, PartitionState.ONLINE)
        self._announcements.leader_and_isr(written)

    def _question(
        self, key: TopicPartition, isr: tuple[BrokerId, ...], strategy: election.Strategy
    ) -> election.Question:
        context = self._context
        replicas = context.replicas(key)
        if self._first_registered_leads and strategy is not election.preferred:
            live = sorted(filter(context.is_live, replicas), key=lambda broker: context.registry.brokers[broker].epoch)
            replicas = (*live, *(broker for broker in replicas if broker not in live))
        unclean = context.registry.topics[key.topic_id].unclean
        return election.Question(replicas, isr, context.is_live, context.leaving.__contains__, unclean)

    def leave_isrs(self, broker: BrokerId, keys: Collection[TopicPartition], cause: Cause) -> Steps:
        """Controller takes a broker out of ISRs, unless it is the last member; who led them leads no more."""

        def decide(_key: TopicPartition, state: StateData) -> StateData | None:
            if broker not in state.isr:
                return None
            leader = NO_LEADER if state.leader == broker else state.leader
            isr = tuple(member for member in state.isr if member != broker) or state.isr
            return StateData(leader, state.leader_epoch + 1, isr, self._context.epoch, cause)

        written = yield from self._rewrite(keys, decide)
        self._announcements.leader_and_isr(written, but=broker)

    def lose(self, broker: BrokerId, cause: Cause) -> Steps:
        """A broker died: its leaderships move where they can, then it leaves the ISRs."""
        for key in self._context.registry.led_by(broker):
            self._context.enter(key, PartitionState.OFFLINE)
        yield from self.bring_online(cause)
        yield from self.leave_isrs(broker, self._context.registry.hosted_by(broker), cause)

    def refresh(self, keys: Iterable[TopicPartition]) -> Steps:
        """Controller reads states that leaders changed."""
        yield from self._rewrite(list(keys), lambda _key, _state: None)

    def _rewrite(self, keys: Collection[TopicPartition], decide: Decision) -> Waiting[list[TopicPartition]]:
        """Read, decide, write, until nobody interfered; give what was written."""
        written: list[TopicPartition] = []
        while keys:
            responses = yield tuple(GetData(state_path(key)) for key in keys)
            writes: list[tuple[TopicPartition, SetData]] = []
            for key, result in zip(keys, responses, strict=True):
                if result.znode is None:
                    continue
                self._context.learn(key, result.znode)
                state = decide(key, result.znode.data)
                if state is not None:
                    writes.append((key, SetData(state_path(key), state, result.znode.version)))
            results = yield tuple(write for _, write in writes)
            outcomes = list(zip((key for key, _ in writes), results, strict=True))
            for key, result in outcomes:
                if result.code is Code.OK and result.znode is not None:
                    self._context.learn(key, result.znode)
                    written.append(key)
            keys = [key for key, result in outcomes if result.code is Code.BAD_VERSION]
        return written
