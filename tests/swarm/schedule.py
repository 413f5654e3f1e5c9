"""A cluster, a topic, and a list of acts upon it, each after a wait: what a random run is, and how it is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros, TopicId, TopicPartition
from streaming.model.cluster.cluster import Cluster
from streaming.model.constants import Constants
from streaming.model.controller.change import Mode
from streaming.model.controller.topics import NewTopic
from streaming.model.invariants.watch import Violation, Watch
from streaming.model.messages.network import CONTROLLER
from streaming.sources.simulated.faults import SimulatedNetwork
from tests.swarm.settled import settling_ms, unsettled

KEY: Final = TopicPartition(TopicId("swarm"), 0)
_START_MS: Final = 600
_LONGEST_SETTLING: Final = 4


class Act(NamedTuple):
    """Something done to the cluster. ``subject``: a broker, a link, replicas, or a count and whether acks is all."""

    wait_ms: int
    action: str
    subject: tuple[int, ...]

    def __str__(self) -> str:
        return f"after {self.wait_ms} ms {self.action} {','.join(map(str, self.subject))}"


class Options(NamedTuple):
    """A small cluster with one partition.

    Attributes:
        constants: with short windows, so that little simulated time shows much.
        replicas: of the partition; brokers beyond them exist to receive it.
        brokers: their ids.
        latency_ms: shortest and longest way of a message.
        seed: of the latencies.
        heals: whether the run ends with everything repaired, and asks what has to come true then.
    """

    constants: Constants
    replicas: tuple[BrokerId, ...]
    brokers: tuple[BrokerId, ...]
    min_isr: int
    unclean: bool
    latency_ms: tuple[int, int]
    seed: int
    heals: bool


class Run:
    """One cluster under a schedule, watched at every step."""

    def __init__(self, options: Options) -> None:
        random = Random(f"{options.seed} network")
        self.network = SimulatedNetwork(random, options.latency_ms)
        self.cluster = Cluster(options.constants, self.network, origin=Micros(0))
        self.watch = Watch(self.cluster)
        self._options = options
        self._processes = 0
        for broker in options.brokers:
            self._start(broker)
        self.cluster.advance(_START_MS + options.constants.start_up_ms)
        config = {
            "min.insync.replicas": str(options.min_isr),
            "unclean.leader.election.enable": str(options.unclean).lower(),
        }
        self._admin = self.cluster.admin
        self._admin.create_topic(NewTopic("swarm", KEY.topic_id, (options.replicas,)), config)
        self.cluster.advance(self.cluster.now + 100)

    def play(self, schedule: Sequence[Act]) -> None:
        """Carry out a schedule.

        Raises:
            Violation: a promise was broken, or did not come true in time.
        """
        for act in schedule:
            self.cluster.advance(self.cluster.now + act.wait_ms)
            self._carry_out(act)
            self.watch.check()
        if self._options.heals:
            self._heal()

    def _carry_out(self, act: Act) -> None:
        cluster, subject = self.cluster, tuple(BrokerId(broker) for broker in act.subject)
        if act.action == "write":
            cluster.produce({KEY: act.subject[0]}, acks_all=bool(act.subject[1]))
        elif act.action == "start":
            self._start(subject[0])
        elif act.action == "hold":
            self.network.hold((subject[0], subject[1]))
        elif act.action == "slow":
            self.network.slow((subject[0], subject[1]), act.subject[2])
        elif act.action == "release":
            self._release(subject[0], subject[1])
        elif act.action == "elect":
            self._admin.elect_leaders(Mode.PREFERRED, [KEY])
        elif act.action == "reassign":
            self._admin.alter_partition_reassignments({KEY: subject})
        else:
            getattr(cluster, act.action)(subject[0])

    def _start(self, broker: BrokerId) -> None:
        self._processes += 1
        self.cluster.start(broker, f"incarnation-{self._processes}")

    def _release(self, sender: BrokerId, receiver: BrokerId) -> None:
        self.network.release((sender, receiver))
        self.cluster.release((sender, receiver))

    def _heal(self) -> None:
        """Faults end, everything runs again; what should come true then, has to."""
        nodes = (*self._options.brokers, CONTROLLER)
        for sender in nodes:
            for receiver in nodes:
                self._release(sender, receiver)
        once = settling_ms(self._options.constants)
        for _ in range(_LONGEST_SETTLING):
            for broker in self._options.brokers:
                self.cluster.resume(broker)
                self._start(broker)
            self.cluster.advance(self.cluster.now + once)
            complaints = unsettled(self.cluster, self.watch)
            if not complaints:
                return
        name, _, complaint = complaints[0].partition(": ")
        raise Violation(name, KEY, complaint)
