"""A scenario being played: the clock, the seed, the network, the faults and the traffic around a model cluster.

Time is model time in milliseconds; the scenario's time 0 is :data:`WARM_UP_MS`, when the cluster stands and settled.
"""

from __future__ import annotations

import heapq
import uuid
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, Micros, TopicId, TopicPartition, topic_id_from_uuid
from streaming.model.clients.consumer import Consumer
from streaming.model.clients.positions import ConsumerConfig, GroupProtocol, ResetPolicy
from streaming.model.clients.producer import Producer
from streaming.model.clients.transactional_producer import Phase, TransactionalProducer
from streaming.model.cluster.cluster import Cluster
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.metadata_writer import MICROS_PER_MS
from streaming.model.controller.placement import JavaRandom, UsableBroker, assign_replicas, place, usable_brokers
from streaming.model.controller.topics import NewTopic
from streaming.model.coordinators.internal_topics import coordinators_topics
from streaming.model.invariants.groups import GroupWatch
from streaming.model.invariants.watch import Violation, Watch
from streaming.model.messages.clients import CONSUMER_OFFSETS, TRANSACTION_STATE, Acks, IsolationLevel
from streaming.sources.simulated.faults import SimulatedNetwork, inflict
from streaming.sources.simulated.scenario import Placement, TopicPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.sources.simulated.faults import Stage
    from streaming.sources.simulated.scenario import Fault, GroupPlan, ProducerPlan, Scenario

CREATE_TOPICS_MS: Final = 3_000
PRODUCE_MS: Final = 4_000
WARM_UP_MS: Final = 10_000
ASK_AGAIN_MS: Final = 500
CHECK_GROUPS_MS: Final = 1_000


class Simulation:
    """Plays a scenario; the same seed gives the same run, however time is cut into pieces.

    Args:
        scenario: the cluster and its fate.
        seed: of latencies, traffic, placement and ids.
        origin: wall-clock time of model time 0, UTC microseconds.
        watched: check every invariant after every step, and remember what writers lost.

    Attributes:
        watch: what was found, None unless ``watched``.
        group_watch: the same of consumer groups, looked at each second; None without any.
        group_violations: the promises to groups that were broken, each once.
        cluster: the model.
        agenda: what is planned; looks at the cluster in periods are planned here.
        topic_ids: of the topics that exist, by name.
    """

    def __init__(self, scenario: Scenario, *, seed: int, origin: Micros, watched: bool = False) -> None:
        self.scenario = scenario
        self.network: SimulatedNetwork = SimulatedNetwork(Random(f"{seed} network"))  # noqa: S311 - reproducible on purpose
        elections = Random(f"{seed} elections")  # noqa: S311 - reproducible on purpose
        self.cluster: Cluster = Cluster(
            scenario.constants, self.network, origin=origin, jitter=lambda _, below: elections.randrange(below)
        )
        self.watch = Watch(self.cluster, stops=False) if watched else None
        self.group_watch = GroupWatch(self.cluster) if watched and scenario.groups else None
        self.group_violations: dict[str, Violation] = {}
        self.agenda = Agenda()
        self.topic_ids: dict[str, TopicId] = {}
        self._ids = Random(f"{seed} ids")  # noqa: S311 - reproducible on purpose
        self._random = JavaRandom(Random(f"{seed} placement").getrandbits)  # noqa: S311 - reproducible on purpose
        self._writers = Writers(self, Random(f"{seed} traffic"))  # noqa: S311 - reproducible on purpose
        self._faults: list[tuple[int, Fault]] = []
        self._origin = origin
        self._begin()

    @property
    def batches_written(self) -> int:
        """Batches that anonymous writers have sent, one a partition and round."""
        return self._writers.batches

    @property
    def now(self) -> Micros:
        """The time of the last act, as wall-clock time."""
        return Micros(self._origin + self.cluster.now * MICROS_PER_MS)

    def play(self, until: int, look: Callable[[], None]) -> None:
        """Play up to ``until``; ``look`` is called after everything that happened."""
        while (due := self.agenda.due(until)) is not None:
            at, act = due
            self._advance(at, look)
            act()
            look()
        self._advance(until, look)

    def _advance(self, until: int, look: Callable[[], None]) -> None:
        if until > self.cluster.now:
            self.cluster.advance(until)
            look()

    # -------------------------------------------------------------- the plan

    def _begin(self) -> None:
        """Plan the start of the cluster, then the scenario from its time 0 on."""
        for broker in self.scenario.brokers:
            self.start(broker)
        for topic in self.scenario.topics:
            if topic.create_at is None:
                self.agenda.at(CREATE_TOPICS_MS, partial(self.create, topic))
        self.agenda.every(TRAFFIC_MS, PRODUCE_MS, self._writers.write)
        for plan in self.scenario.producers:
            self.agenda.at(PRODUCE_MS, partial(self._connect, plan))
        for group in self.scenario.groups:
            self.agenda.at(PRODUCE_MS, partial(self._gather, group))
        if self.group_watch is not None:
            self.agenda.every(CHECK_GROUPS_MS, PRODUCE_MS, self._check_groups)
        self.agenda.at(WARM_UP_MS, partial(self._plan, WARM_UP_MS))

    def _check_groups(self) -> None:
        """Ask the promises to groups; they hold as long as no record was lost."""
        assert self.group_watch is not None  # noqa: S101 - planned only with one
        assert self.watch is not None  # noqa: S101 - both or none
        if not self.watch.may_have_lost:
            try:
                self.group_watch.check()
            except Violation as violation:
                self.group_violations.setdefault(violation.invariant, violation)

    def _connect(self, plan: ProducerPlan) -> None:
        """A producer starts; the first that is transactional makes its coordinator's topic."""
        if plan.transactional_id:
            self._need(TRANSACTION_STATE)
        producer = SimulatedProducer(self, plan)
        self.agenda.every(SEND_MS, self.cluster.now + SEND_MS, producer.act)

    def _gather(self, plan: GroupPlan) -> None:
        """The members of a group start; the first group makes its coordinator's topic."""
        self._need(CONSUMER_OFFSETS)
        for member in members(self, plan):
            self.cluster.connect(member.node, member)
            member.act(self.cluster.now)
            self.cluster.flush(member.node)

    def _need(self, internal_topic: str) -> None:
        """Create a topic that a coordinator keeps its state in, with as many replicas as there are brokers for."""
        if internal_topic in self.topic_ids:
            return
        topics = coordinators_topics(self.scenario.constants)
        topic = next(topic for topic in topics if topic.name == internal_topic)
        brokers = len(self.scenario.brokers)
        self.create(
            TopicPlan(
                name=internal_topic,
                partitions=topic.partitions,
                replication_factor=min(topic.replication_factor or 1, brokers),
                min_insync_replicas=min(topic.min_isr or 1, brokers),
                cleanup_policy=topic.cleanup,
            )
        )

    def _plan(self, begin: int) -> None:
        """Put one round of the scenario on the agenda, and the next one after it."""
        for fault in self.scenario.faults:
            self.agenda.at(begin + _ms(fault.at), partial(self.inflict, fault))
        for topic in self.scenario.topics:
            if topic.create_at is not None:
                self.agenda.at(begin + _ms(topic.create_at), partial(self.create, topic))
            if topic.delete_at is not None:
                self.agenda.at(begin + _ms(topic.delete_at), partial(self.delete, topic))
        if self.scenario.repeat:
            following = begin + _ms(self.scenario.duration)
            self.agenda.at(following, partial(self._plan, following))

    # -------------------------------------------------------------- acts

    def inflict(self, fault: Fault) -> None:
        """Apply a fault now."""
        self._faults.append((self.cluster.now, fault))
        inflict(self, fault)

    def take_faults(self) -> list[tuple[int, Fault]]:
        """Give the faults since the last call, each with its model time in milliseconds."""
        faults, self._faults = self._faults, []
        return faults

    def start(self, broker: BrokerId) -> None:
        """Operator starts a broker's process."""
        self.cluster.start(broker, self._new_id(), self.scenario.racks.get(broker))

    def _new_id(self) -> TopicId:
        return topic_id_from_uuid(uuid.UUID(int=self._ids.getrandbits(128)))

    def administer(self, request: Callable[[], object]) -> None:
        """Administrator asks, again and again while no controller is active.

        Raises:
            RefusedRequest: for any other reason.
        """
        try:
            request()
        except RefusedRequest as refusal:
            if refusal.error is not Error.NOT_CONTROLLER:
                raise
            self.agenda.at(self.cluster.now + ASK_AGAIN_MS, partial(self.administer, request))

    def create(self, plan: TopicPlan) -> None:
        """Administrator creates a topic."""
        self.administer(partial(self._create, plan, self._new_id()))

    def _create(self, plan: TopicPlan, topic_id: TopicId) -> None:
        minimum = plan.min_insync_replicas
        config = {} if minimum is None else {"min.insync.replicas": str(minimum)}
        if plan.unclean_leader_election:
            config["unclean.leader.election.enable"] = "true"
        if plan.cleanup_policy != "delete":
            config["cleanup.policy"] = plan.cleanup_policy
        assignments = plan.assignments or self._place(plan)
        self.cluster.admin.create_topic(NewTopic(plan.name, topic_id, assignments), config)
        self.topic_ids[plan.name] = topic_id

    def _place(self, plan: TopicPlan) -> tuple[tuple[BrokerId, ...], ...]:
        scenario, hosts = self.scenario, plan.brokers or self.scenario.brokers
        if scenario.placement is Placement.STRIPED:
            everyone = self.cluster.controller.registry.brokers
            registered = usable_brokers({broker: everyone[broker] for broker in hosts if broker in everyone})
            return place(registered, plan.partitions, plan.replication_factor, self._random)
        brokers = [UsableBroker(broker, scenario.racks.get(broker)) for broker in hosts]
        return assign_replicas(brokers, plan.partitions, plan.replication_factor)

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic that exists."""
        return self.cluster.controller.registry.topics[topic_id].partitions

    def topic_name(self, topic_id: TopicId) -> str:
        """Give the name of a topic that exists."""
        return self.cluster.controller.registry.topics[topic_id].topic

    def release(self, link: tuple[BrokerId, BrokerId]) -> None:
        """A held or slow link is itself again, and what waited on it travels."""
        self.network.release(link)
        self.cluster.release(link)

    def delete(self, plan: TopicPlan) -> None:
        """Administrator deletes a topic."""
        self.administer(partial(self._delete, plan.name))

    def _delete(self, name: str) -> None:
        if name in self.topic_ids:
            self.cluster.admin.delete_topic(self.topic_ids[name])
            del self.topic_ids[name]


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


# The agenda of a simulation, by time. Knows nothing of clusters.


class Agenda:
    """Acts with their times, in milliseconds; among equals the one planned first comes first."""

    def __init__(self) -> None:
        self._acts: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, at: int, act: Callable[[], None]) -> None:
        """Plan one act."""
        self._number += 1
        heapq.heappush(self._acts, (at, self._number, act))

    def every(self, period: int, first: int, act: Callable[[], None]) -> None:
        """Plan an act again and again."""

        def once(at: int) -> None:
            act()
            self.at(at + period, lambda: once(at + period))

        self.at(first, lambda: once(first))

    def due(self, until: int) -> tuple[int, Callable[[], None]] | None:
        """Take the next act, if it is planned for ``until`` or earlier: (its time, the act)."""
        if not self._acts or self._acts[0][0] > until:
            return None
        at, _, act = heapq.heappop(self._acts)
        return at, act


# Producers of a simulated cluster that wait for their answers, and the members of consumer groups.
#
# The anonymous writers of ``traffic`` stand for the mass; these are for what happens to a single record.


SEND_MS: Final = 200
_ACKS: Final = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}


class SimulatedProducer:
    """One producer of a scenario: a batch each :data:`SEND_MS` to the partitions of its topic in turn."""

    def __init__(self, stage: Stage, plan: ProducerPlan) -> None:
        self._stage = stage
        self._plan = plan
        self._turn = 0
        self._began = 0
        self._has_aborted = False
        cluster, brokers = stage.cluster, stage.scenario.brokers
        if plan.transactional_id:
            self._producer: Producer = TransactionalProducer(plan.id, brokers, cluster.constants, plan.transactional_id)
        else:
            acks = _ACKS[plan.acks]
            self._producer = Producer(plan.id, brokers, cluster.constants, acks=acks, idempotence=plan.idempotent)
        cluster.connect(plan.id, self._producer)

    def act(self) -> None:
        """Send the next batch, and begin or end a transaction when it is time."""
        producer, now = self._producer, self._stage.cluster.now
        if self._plan.id not in self._stage.cluster.clients:
            return  # it was killed
        producer.act(now)
        if isinstance(producer, TransactionalProducer):
            self._act_in_transactions(producer, now)
        else:
            self._send(now)
        self._stage.cluster.flush(self._plan.id)

    def _act_in_transactions(self, producer: TransactionalProducer, now: int) -> None:
        if producer.phase is Phase.READY and not (self._has_aborted and self._plan.gives_up):
            producer.begin(now)
            self._began = now
        if producer.phase is not Phase.IN_TRANSACTION:
            return
        if producer.has_failed:
            producer.abort(now)
            self._has_aborted = True
        elif now - self._began >= self._plan.transaction_seconds * 1_000:
            producer.commit(now)
        else:
            self._send(now)

    def _send(self, now: int) -> None:
        topic_id = self._stage.topic_ids.get(self._plan.topic)
        if topic_id is None:
            return
        self._turn += 1
        partition = self._turn % self._stage.partitions_of(topic_id)
        size = max(1, round(self._plan.records_per_second * SEND_MS / 1_000))
        self._producer.send(now, TopicPartition(topic_id, partition), size)


def members(stage: Stage, plan: GroupPlan) -> Iterator[Consumer]:
    """Make the members of a group, under consecutive ids."""
    topics = frozenset(stage.topic_ids[name] for name in plan.topics if name in stage.topic_ids)
    config = ConsumerConfig(
        group=plan.name,
        topics=topics,
        protocol=GroupProtocol(plan.protocol),
        reset=ResetPolicy.EARLIEST,
        isolation=IsolationLevel.READ_COMMITTED if plan.reads_committed else IsolationLevel.READ_UNCOMMITTED,
    )
    for number in range(plan.members):
        node = BrokerId(plan.id + number)
        yield Consumer(node, stage.scenario.brokers, stage.cluster.constants, config)


# Writers of a simulated cluster: anonymous producers that write at a rate, whatever happens to the answers.


TRAFFIC_MS: Final = 200


class Writers:
    """Writes to every topic that has a rate. ``batches`` counts what was sent."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage = stage
        self._random = random
        self.batches = 0

    def write(self) -> None:
        """Write one round: each partition a random share around its topic's rate."""
        for plan in self._stage.scenario.topics:
            topic_id = self._stage.topic_ids.get(plan.name)
            if topic_id is not None and plan.records_per_second > 0:
                mean = plan.records_per_second * TRAFFIC_MS / 1_000
                counts = ((number, self._share(mean)) for number in range(plan.partitions))
                appends = {TopicPartition(topic_id, number): count for number, count in counts if count}
                self.batches += len(appends)
                self._stage.cluster.produce(appends, acks_all=plan.acks == "all")

    def _share(self, mean: float) -> int:
        """A whole number with this mean, up to twice as much."""
        return int(self._random.random() * 2 * mean + self._random.random())
