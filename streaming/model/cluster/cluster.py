"""A cluster: nodes joined by an event loop. The next event is the earliest; among equals, the one set first.

The caller owns the clock (it says when to stop), the network (it says when a message arrives) and every fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from streaming.contracts.identifiers import BrokerId, Micros, TopicPartition
from streaming.model.broker.leadership import ReplicationProbe
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.controller import Controller
from streaming.model.controller.metadata_writer import CommitProbe
from streaming.model.controller.topics import CLUSTER, NewTopic
from streaming.model.messages.membership import BrokerRegistrationRequest
from streaming.model.messages.network import (
    Address,
    Disconnected,
    Event,
    EventQueue,
    Link,
    Message,
    Network,
    Pause,
    Process,
    Timer,
)
from streaming.model.messages.replication import FetchResponse
from streaming.model.nodes.control_plane import ControlPlane, broker_class, control_plane
from streaming.model.nodes.quorum.controllers import Jitter, staggered
from streaming.model.storage.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.contracts.identifiers import TopicId
    from streaming.model.constants import Constants
    from streaming.model.controller.change import Assignment, Mode
    from streaming.model.controller.metadata_writer import Commit
    from streaming.model.controller.placement import Assignments, JavaRandom
    from streaming.model.nodes.broker import Broker
    from streaming.model.nodes.control_plane import ControlProcess

# Probe for an observer outside the protocol, called at the moment it happens. Nothing in the protocol depends on it.
#
# A cluster without an observer pays one comparison with None for each of these moments.


class Probe(ReplicationProbe, CommitProbe, Protocol):
    """An observer of a whole cluster; see ``invariants.ghost``."""

    def stepped(self) -> None:
        """The cluster took one event, and is at rest until the next."""

    def process_changed(self, broker: BrokerId) -> None:
        """A broker's process began or ended."""

    def losing(self, broker: BrokerId, *, everything: bool) -> None:
        """A broker is about to lose its disk, or (not ``everything``) what is not flushed; it does not run."""


T = TypeVar("T")


class Cluster:
    """Brokers, controllers, and what is on its way between them.

    Attributes:
        now: time of the last event or command, in milliseconds.
        constants: of every node.
        controllers: who of them runs, and who is active.
        controller: what the active one knows; its registry is the truth of the cluster.
        brokers: running processes, paused ones included.
        clients: producers and consumers, under ids that no broker has.
        disks: what outlives the processes.
        admin: what administrators ask.
        refused: records that a leader refused, in all.
        events_taken: messages and timers so far.

    Args:
        constants, network: of every node; says when a message arrives.
        origin: wall-clock time of model time 0, for the metadata log.
        jitter: gives a controller a number in ``[0, n)``, which spreads elections.
    """

    def __init__(self, constants: Constants, network: Network, *, origin: Micros, jitter: Jitter = staggered) -> None:
        self.now = 0
        self.controllers = control_plane(constants, origin=origin, jitter=jitter)
        self.controller = self.controllers.state
        self.brokers: dict[BrokerId, Broker] = {}
        self.clients: dict[BrokerId, Process] = {}
        self.disks: dict[BrokerId, Disk] = {}
        self.admin = Admin(self.ask)
        self.refused = 0
        self.events_taken = 0
        self.constants = constants
        self._network = network
        self._queue = EventQueue()
        self._processes: dict[BrokerId, int] = {}
        self._paused: dict[BrokerId, Pause] = {}
        self._probe: Probe | None = None
        self._nodes: dict[BrokerId, Process] = {}
        for node in self.controllers.nodes:
            self._run(node, self.controllers.create(node, f"controller-{-node}"))
        for node, process in self.controllers.running.items():
            process.start(0, 0)
            self.flush(node)

    def reachable(self) -> list[Broker]:
        """Give the brokers that would answer a question now."""
        return [broker for node, broker in self.brokers.items() if node not in self._paused]

    # -------------------------------------------------------------- the loop

    @property
    def next_at(self) -> int:
        """Due time of the next event."""
        return self._queue.next_at

    def advance(self, until: int) -> None:
        """Take every event up to and including ``until``."""
        while self.next_at <= until:
            self.step()
        self.now = until

    def step(self) -> None:
        """Take one event."""
        event = self._queue.pop()
        self.now = event.at
        self.events_taken += 1
        self._deliver(event)
        if self._probe is not None:
            self._probe.stepped()

    def observe(self, probe: Probe) -> None:
        """Tell an observer from now on what happens. Enabled while no process runs."""
        self._probe = self.controller.writer.probe = probe

    def take_commits(self) -> list[Commit]:
        """Give what the controller committed since the last call."""
        commits, self.controller.writer.commits = self.controller.writer.commits, []
        return commits

    def _deliver(self, event: Event) -> None:
        """Controllers lose the connection of a process that has ended."""
        node, sender = event.receiver.node, event.sender
        if self._processes.get(node) != event.receiver.process or node not in self._nodes:
            self._refuse_connection(event)
        elif node in self._paused:
            self._paused[node].events.append(event)
        elif node not in self.controllers.running or self._is_process_alive(sender, event.payload):
            self._nodes[node].receive(self.now, event.payload)
            self.flush(node)

    def _is_process_alive(self, sender: Address, request: Message | Timer) -> bool:
        """A request dies with its process; without the check on incarnations the next one gets the answer to it."""
        outlives = isinstance(request, BrokerRegistrationRequest) and not self.constants.switches.incarnation_check
        return outlives or self._processes.get(sender.node) == sender.process

    def _refuse_connection(self, event: Event) -> None:
        """Controllers notice by their own timeouts; and two ends would tell each other for ever."""
        deaf = event.sender == event.receiver or isinstance(event.payload, Disconnected)
        if not deaf and event.sender.node not in self.controllers.nodes:
            self._queue.push(self.now + 1, event.sender, Disconnected(event.receiver.node), event.receiver)

    def flush(self, node: BrokerId) -> None:
        """Carry out what a process wants done. Direct calls of a process are followed by this."""
        process, address = self._nodes[node], self._address(node)
        outbox = process.outbox
        messages, outbox.messages = outbox.messages, []
        timers, outbox.timers = outbox.timers, []
        for receiver, message in messages:
            self._send(address, receiver, message)
        for delay, timer in timers:
            self._queue.push(self.now + delay, address, timer, address)
        if process.has_ended:
            self._end(node)

    def _address(self, node: BrokerId) -> Address:
        return Address(node, self._processes.get(node, 0))

    def _send(self, sender: Address, receiver: BrokerId, message: Message) -> None:
        records = 0
        if isinstance(message, FetchResponse):
            records = sum([item.end_offset - item.fetch_offset for item in message.partitions])
        at = self._network.arrival(self.now, sender.node, receiver, records)
        if at is None:
            self._queue.hold(self._address(receiver), message, sender)
        else:
            self._queue.push(at, self._address(receiver), message, sender)

    # -------------------------------------------------------------- what operators, producers and fate do

    def start(self, node: BrokerId, incarnation_id: str, rack: str | None = None) -> None:
        """Operator starts a broker or a controller. Enabled while none of that id runs."""
        if node in self.controllers.nodes and node not in self._nodes:
            controller = self.controllers.create(node, incarnation_id)
            self._run(node, controller)
            controller.start(self.now, self.constants.start_up_ms)
            self.flush(node)
        elif node not in self._nodes:
            disk, registry = self.disks.setdefault(node, Disk(self.constants.log_dirs)), self.controller.registry
            broker = broker_class(self.constants)(node, incarnation_id, self.constants, disk, registry)
            self.brokers[node] = broker
            self._run(node, broker)
            broker.lifecycle.rack = rack
            if self._probe is not None:
                broker.leadership.probe = broker.following.probe = self._probe
                self._probe.process_changed(node)
            broker.start()
            self.flush(node)

    def _run(self, node: BrokerId, process: Process) -> None:
        self._processes[node] = self._processes.get(node, 0) + 1
        self._nodes[node] = process

    def connect(self, node: BrokerId, client: Process) -> None:
        """A producer or consumer starts, under an id that no broker has."""
        self.clients[node] = client
        self._run(node, client)
        self.flush(node)

    def kill(self, node: BrokerId) -> None:
        """Fate ends a process (SIGKILL). Peers see their connections break; controllers have to wait it out."""
        if node in self._nodes:
            self._end(node)

    def lose_power(self, node: BrokerId) -> None:
        """Fate cuts a broker's machine off: the process ends, and what its disk had not flushed is lost."""
        self.kill(node)
        if self._probe is not None:
            self._probe.losing(node, everything=False)
        self.disks[node].lose_power()

    def sync(self, node: BrokerId) -> None:
        """Operating system of a broker's machine flushes what was appended so far.

        When that happens is the caller's: Kafka leaves it to the operating system, which takes its time.
        """
        self.disks[node].sync()

    def wipe(self, node: BrokerId) -> None:
        """Fate breaks a broker's disk, and an operator replaces it: the process ends, all its replicas are gone."""
        self.kill(node)
        if self._probe is not None:
            self._probe.losing(node, everything=True)
        self.disks[node] = Disk(self.constants.log_dirs)

    def fail_log_dir(self, node: BrokerId, name: str) -> None:
        """Fate makes one of a broker's directories unreadable. Enabled while the broker runs."""
        if node in self.brokers:
            self.brokers[node].fail_log_dir(name)
            self.flush(node)

    def stop(self, node: BrokerId) -> None:
        """Operator stops a broker or a controller (SIGTERM). A broker goes when the active controller agrees."""
        running: Mapping[BrokerId, Broker | ControlProcess] = {**self.brokers, **self.controllers.running}
        if node in running and node not in self._paused:
            running[node].shut_down(self.now)
            self.flush(node)

    def _end(self, node: BrokerId) -> None:
        ended = self._address(node)
        self._paused.pop(node, None)
        del self._nodes[node]
        if node in self.controllers.running:
            del self.controllers.running[node]
        elif self.clients.pop(node, None) is None:
            del self.brokers[node]
            self.disks[node].lose_process()
            self.controllers.disconnected(node)
            if self._probe is not None:
                self._probe.process_changed(node)
        for peer in (*self.brokers, *self.clients):
            self._queue.push(self.now + 1, self._address(peer), Disconnected(node), ended)

    def is_paused(self, node: BrokerId) -> bool:
        """Return whether a process is frozen."""
        return node in self._paused

    def pause(self, node: BrokerId) -> None:
        """Fate freezes a process (SIGSTOP, a long garbage collection): connections stay, nothing runs."""
        if node in self._nodes:
            self._paused.setdefault(node, Pause(self.now))

    def resume(self, node: BrokerId) -> None:
        """Resume a frozen process: overdue timers first, then what waited in its sockets."""
        pause = self._paused.pop(node, None)
        if pause is None:
            return
        if node in self.brokers:
            broker = self.brokers[node]
            broker.leadership.stalled = (pause.since, self.now)
            self.refused += broker.append(self.now, pause.appends.items(), acks_all=False)
            self.flush(node)
        for event in sorted(pause.events, key=lambda event: event.sender != event.receiver):
            self._deliver(event)

    def release(self, link: Link) -> None:
        """A held or slow link is itself again: what waited on it, or crept, travels now, in order."""
        for event in self._queue.withdraw(link):
            at = self._network.arrival(self.now, *link, 0)
            assert at is not None, f"{link} is still held"  # noqa: S101 - the driver releases its network first
            self._queue.push(at, event.receiver, event.payload, event.sender)

    def produce(self, appends: Mapping[TopicPartition, int], *, acks_all: bool) -> None:
        """Producers write to the partitions' current leaders; what has no running leader is refused.

        Departs from Kafka: no retries, and a paused leader finds only one batch a partition in its socket when it
        wakes (a producer's in-flight limit).
        """
        by_leader: dict[BrokerId, list[tuple[TopicPartition, int]]] = {}
        for key, count in appends.items():
            partition = self.controller.registry.partitions.get(key)
            if partition is None or partition.leader not in self.brokers:
                self.refused += count
            elif partition.leader in self._paused:
                self._paused[partition.leader].appends.setdefault(key, count)
            else:
                by_leader.setdefault(partition.leader, []).append((key, count))
        for leader, batch in by_leader.items():
            self.refused += self.brokers[leader].append(self.now, batch, acks_all=acks_all)
            self.flush(leader)

    def ask(self, request: Callable[[ControlPlane, int], T]) -> T:
        """Send a request to the active controller; ``RefusedRequest`` without one, or while it is frozen."""
        node = self.controllers.active
        if node is None or node in self._paused:
            raise RefusedRequest(Error.NOT_CONTROLLER, "no controller is active")
        answer = request(self.controller, self.now)
        self.controllers.running[node].settle(self.now)
        self.flush(node)
        return answer


# Requests of administrators: topics, configuration, elections, reassignments, brokers that are gone.
#
# Departs from Kafka: a request reaches the active controller at once, and so does its answer; with ZooKeeper topics
# can only be created and deleted.


class ControllerRequest(Protocol):
    """The way to the active controller."""

    def __call__(self, request: Callable[[ControlPlane, int], T]) -> T:
        """Answer a request at this moment; ``RefusedRequest`` if no controller can."""


class Admin:
    """The requests, by the names that Kafka's ``Admin`` gives them.

    One that concerns one thing raises ``RefusedRequest`` with Kafka's error; one that concerns partitions gives an
    error for each, ``Error.NONE`` is success.
    """

    def __init__(self, ask: ControllerRequest) -> None:
        self._ask_anybody = ask

    def _ask(self, request: Callable[[Controller, int], T]) -> T:
        """Ask what only a KRaft controller does here."""

        def ask(plane: ControlPlane, now: int) -> T:
            if not isinstance(plane, Controller):
                raise RefusedRequest(
                    Error.UNSUPPORTED_VERSION, "with ZooKeeper, topics are only created and deleted here"
                )
            return request(plane, now)

        return self._ask_anybody(ask)

    def place(
        self, random: JavaRandom, partitions: int | None = None, replication_factor: int | None = None
    ) -> Assignments:
        """Let the controller say where new partitions go, by default as many and as often as the brokers' files say.

        Raises:
            RefusedRequest: INVALID_PARTITIONS, or INVALID_REPLICATION_FACTOR: more replicas than brokers.
        """
        return self._ask(lambda controller, _: controller.topics.place(random, partitions, replication_factor))

    def create_topic(self, new: NewTopic, config: Mapping[str, str]) -> None:
        """Create a topic.

        Raises:
            RefusedRequest: TOPIC_ALREADY_EXISTS; INVALID_REPLICA_ASSIGNMENT for impossible or leaderless replicas.
        """
        self._ask_anybody(lambda controller, now: controller.topics.create(now, new, config))

    def delete_topic(self, topic_id: TopicId) -> None:
        """Delete a topic.

        Raises:
            RefusedRequest: UNKNOWN_TOPIC_ID.
        """
        self._ask_anybody(lambda controller, now: controller.topics.delete(now, topic_id))

    def create_partitions(self, topic: str, assignments: Assignments) -> None:
        """Add partitions to a topic.

        Raises:
            RefusedRequest: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS or INVALID_REPLICA_ASSIGNMENT.
        """
        self._ask(lambda controller, now: controller.topics.create_partitions(now, topic, assignments))

    def alter_config(self, key: str, value: str | None, topic: str = CLUSTER) -> None:
        """Set a topic's configuration or the cluster's default; None takes it back.

        Raises:
            RefusedRequest: UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
        """
        self._ask(lambda controller, now: controller.topics.alter_config(now, topic, key, value))

    def elect_leaders(self, mode: Mode, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Error]:
        """Elect preferred leaders, or (UNCLEAN) any live replica where there is no leader; KIP-460.

        Gives ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE by partition.
        """
        return self._ask(lambda controller, now: controller.replication.elect_leaders(now, mode, partitions))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, Error]:
        """Move replicas, or (None) take a running move back; KIP-455.

        Gives INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS by partition.
        """
        return self._ask(lambda controller, now: controller.replication.alter_partition_reassignments(now, targets))

    def list_partition_reassignments(self) -> dict[TopicPartition, Assignment]:
        """Tell which replicas are on the move."""
        return self._ask(lambda controller, _: controller.replication.list_partition_reassignments())

    def unregister_broker(self, broker: BrokerId) -> None:
        """Remove a broker that will not come back.

        Raises:
            RefusedRequest: BROKER_ID_NOT_REGISTERED.
        """
        self._ask(lambda controller, now: controller.membership.unregister(now, broker))
