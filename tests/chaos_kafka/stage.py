"""A real cluster with producers, and two installations of isrwatch that watch it.

One reads the metadata log, the other polls; each has a bus and tables of its own, and a Spark job. Without Spark the
buses are folded at the end, in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from deploy.sandbox import PartitionDescription
from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import SINCE_4, Plan, plan_cluster, random_id
from deploy.sandbox.waiting import wait_until
from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.chaos_kafka.answers import Answers, KafkasAdmin, Unanswered
from tests.chaos_kafka.clients import HUNG, Clients
from tests.chaos_kafka.samples import TABLES
from tests.chaos_kafka.schedule import ACTIVE, COLLECTOR, JOB, LOG, POLL, KafkaAct, OwnDeath, Shape
from tests.plugins.logs import rows_of_log
from tests.plugins.pipeline import Pipeline, Program
from tests.topic_writer import TopicWriter

# Snapshots are small and frequent, so that there is one near the end; none of the log is deleted for it.
# Leaders do not ask whether a transaction is open, as before Kafka 3.6, so one can be left hanging.
PROPERTIES: Final = {
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "transaction.partition.verification.enable": "false",
}
SAMPLES: Final = (
    'offsets_interval = "2s"\ngroups_interval = "2s"\nquorum_interval = "2s"\n'
    'transactions_interval = "2s"\ndirectories_interval = "5s"\n'
)
PRIMARY: Final = {LOG: "metadata_log", POLL: "poll"}
ONE_TASK: Final = "--master local[1] pyspark-shell"
SECONDS_TO_RECOVER: Final = 240.0


class Impossible(Exception):
    """A fault cannot be played now: there is no such topic, or nobody is left to do it to."""


def planned(shape: Shape, directory: Path) -> Plan:
    """Plan the cluster: brokers with two log directories, where KRaft has them (KIP-858), the second one formatted."""
    own: dict[int, dict[str, str]] = {}
    if shape.version != "3.6":
        disks = {broker: directory / f"disk-{broker}" for broker in shape.broker_ids()}
        first = directory / "sandbox"
        own = {broker: {"log.dirs": f"{first / f'node-{broker}' / 'data'},{disk}"} for broker, disk in disks.items()}
    plan = plan_cluster(**shape._asdict(), properties=PROPERTIES, node_properties=own, proxy=True)
    for broker in own:
        of_disk = {"version": 1, "cluster.id": plan.cluster_id, "node.id": broker, "directory.id": random_id()}
        disks[broker].mkdir(parents=True)
        lines = "".join(f"{key}={value}\n" for key, value in of_disk.items())
        (disks[broker] / "meta.properties").write_text(lines)
    return plan


class Side:
    """One installation: a collector, and a job if there is Spark."""

    def __init__(self, name: str, directory: Path, sandbox: Sandbox, *, spark: bool) -> None:
        directory.mkdir(parents=True)
        self.name = name
        self.pipeline = Pipeline(directory)
        self.programs = (COLLECTOR, JOB) if spark else (COLLECTOR,)
        self._running: dict[str, Program] = {}
        self._config = directory / "isrwatch.toml"
        # Polls are as far apart as by default, so that elections happen between two of them.
        addresses = {} if sandbox.plan.advertises_controllers else sandbox.controller_addresses
        self._config.write_text(
            f'[cluster]\nname = "chaos"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
            f'[collect]\nprimary_source = "{PRIMARY[name]}"\nheartbeat_interval = "1s"\n'
            f'config_interval = "5s"\n{SAMPLES if name == LOG else ""}'
            f"[job]\nqueries = {['replication', 'samples'] if name == LOG else ['replication']}\n"
            "[cluster.controllers.addresses]\n"
            + "".join(f'"{node}" = "{address}"\n' for node, address in addresses.items())
        )

    def start(self, program: str) -> None:
        arguments = ["--config", str(self._config)]
        if program == COLLECTOR:
            self._running[program] = self.pipeline.collect(*arguments)
        else:
            own = self.pipeline.job_arguments()
            self._running[program] = self.pipeline.start(JOB, JOB, *arguments, *own, PYSPARK_SUBMIT_ARGS=ONE_TASK)

    def kill(self, program: str) -> None:
        """Kill a program and whatever it has started."""
        if (running := self._running.pop(program, None)) is not None:
            running.kill()
            self.pipeline.programs.remove(running)

    def ended(self) -> Iterator[tuple[str, str]]:
        """Yield the programs that ended by themselves, with their last lines, and start them again."""
        for name, program in list(self._running.items()):
            if program.process.poll() is not None:
                lines = program.text()[-2000:]
                self.kill(name)
                self.start(name)
                yield name, lines

    def fold(self) -> None:
        """Apply the bus in this process, as the job's query does in its own; what was applied before is left out."""
        reader = DirectoryReader(self.pipeline.bus)
        replication = ReplicationBatch(self.pipeline.tables)
        for source in reader.end_positions(Channel.REPLICATION):
            if batches := list(rows_of_log(reader, Channel.REPLICATION, source)):
                replication.apply(pa.Table.from_batches(batches))
        replication.project()

    def fold_samples(self) -> None:
        """Apply the samples on the bus in the same way."""
        reader, samples = DirectoryReader(self.pipeline.bus), SampleBatch(self.pipeline.tables)
        for source in reader.end_positions(Channel.SAMPLES):
            if batches := list(rows_of_log(reader, Channel.SAMPLES, source)):
                samples.apply(pa.Table.from_batches(batches))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.pipeline.rows(table)


class KafkaStage:
    """A cluster and both installations. A context manager; leaves no process behind.

    Attributes:
        held: brokers that are stopped, with the number of faults after which each is started again.
        faults_of_ours: programs of ours that ended by themselves and had no reason to.

    Args:
        directory: empty; everything lies in it, and it stays.
        shape: the cluster.
        spark: whether the jobs run; otherwise :meth:`fold` applies the buses.
        say: takes a line of what is being played.
    """

    def __init__(self, directory: Path, shape: Shape, *, spark: bool, say: Callable[[str], None]) -> None:
        self.held: dict[int, int] = {}
        self.faults_of_ours: list[str] = []
        self._shape, self._spark, self._say = shape, spark, say
        self.sandbox = Sandbox(planned(shape, directory), directory / "sandbox")
        self.sides = {name: Side(name, directory / name, self.sandbox, spark=spark) for name in (LOG, POLL)}
        self._bootstrap = Bootstrap(parse_servers(self.sandbox.bootstrap_servers), dialer(Security()))
        self._writers: dict[str, TopicWriter] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.sandbox)
            for side in self.sides.values():
                stack.callback(side.pipeline.close)
                for program in side.programs:
                    side.start(program)
            stack.callback(self.stop_all_writing)
            for topic in self._shape.topics():
                self.create(topic, self.sandbox.broker_ids)
                self.write(topic)
            self.sandbox.admin.create_topic(HUNG, configs={"min.insync.replicas": "1"})
            servers, is_new = self.sandbox.bootstrap_servers, self._shape.version in SINCE_4
            self.clients = stack.enter_context(Clients(servers, self._say, has_new_protocol=is_new))
            self.kafka = stack.enter_context(KafkasAdmin(servers))
            self._deaths = stack.enter_context(ThreadPoolExecutor(1))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ what a fault asks for

    def running(self, act: KafkaAct) -> list[int]:
        """Return the brokers that are not held, in the order of the act; two at least."""
        running = [broker for broker in act.brokers if broker not in self.held]
        if len(running) < 2:
            raise Impossible("all brokers but one are held")
        return running

    def controller(self, act: KafkaAct) -> int:
        return self.active_controller() if act.controller == ACTIVE else act.controller

    def active_controller(self) -> int:
        return int(self._bootstrap.quorum().leader.node)

    def partition(self, act: KafkaAct) -> tuple[int, PartitionDescription]:
        """Choose a partition of the act's topic."""
        described = self.sandbox.admin.describe(act.topic)
        if not described:
            raise Impossible(f"there is no topic {act.topic}")
        number = int(act.draw * len(described))
        return number, described[act.topic, number]

    def described(self, topic: str, partition: int) -> PartitionDescription:
        return self.sandbox.admin.describe(topic)[topic, partition]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for what must follow from a fault, half a minute at most."""
        wait_until(condition, what, seconds=30.0, every=0.2)

    def attempt(self, operation: Callable[..., object], *arguments: object) -> None:
        """Do what a cluster under faults may refuse."""
        try:
            operation(*arguments)
        except (KafkaException, KafkaError, TimeoutError) as refusal:
            self._say(f"    refused: {getattr(operation, '__name__', operation)}: {refusal}")

    def start(self, node: int) -> None:
        """Start a node that a fault has stopped."""
        self.held.pop(node, None)
        self.sandbox.start(node)

    # ------------------------------------------------------------------ topics and producers

    def create(self, topic: str, brokers: Sequence[int]) -> None:
        """Create a topic on brokers in this order."""
        count, factor, minimum = self._shape.topics()[topic]
        assignment = [
            [brokers[(number + each) % len(brokers)] for each in range(min(factor, len(brokers)))]
            for number in range(count)
        ]
        self.sandbox.admin.create_topic(topic, assignment=assignment, configs={"min.insync.replicas": str(minimum)})

    def write(self, topic: str) -> None:
        """Produce to every partition that a topic has now."""
        writer = TopicWriter(self.sandbox.bootstrap_servers, topic, acks="all")
        try:
            self._writers[topic] = writer.__enter__()
        except (KafkaException, KeyError) as refusal:
            self._say(f"    nobody writes to {topic}: {refusal}")

    def stop_writing(self, topic: str) -> None:
        if (writer := self._writers.pop(topic, None)) is not None:
            writer.__exit__(None, None, None)

    def stop_all_writing(self) -> None:
        for topic in list(self._writers):
            self.stop_writing(topic)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let nobody write for a while; afterwards the transaction that was open is ended and another one begun."""
        topics = list(self._writers)
        self.clients.quiet(is_quiet=True)
        self.stop_all_writing()
        yield
        for topic in topics:
            self.write(topic)
        self.clients.quiet(is_quiet=False)
        self.clients.begin_transaction()

    # ------------------------------------------------------------------ our own processes

    def dying(self, own: OwnDeath | None) -> Future[None]:
        """Let one of our programs die while the fault is played."""
        return self._deaths.submit(self._die, own)

    def _die(self, own: OwnDeath | None) -> None:
        if own is None:
            return
        side = self.sides[own.side]
        program = own.program if own.program in side.programs else COLLECTOR
        time.sleep(own.after)
        side.kill(program)
        time.sleep(own.down)
        side.start(program)

    def revive(self) -> None:
        """Start what ended by itself, as a supervisor would.

        A collector that may read the log only ends at its start if it cannot; anything else had no reason to.
        """
        for side in self.sides.values():
            for program, lines in side.ended():
                last = lines.strip().rpartition("\n")[2]
                self._say(f"    the {program} of the {side.name} ended: {last}")
                if "Traceback" in lines or (side.name, program) != (LOG, COLLECTOR):
                    self.faults_of_ours.append(f"the {program} of the {side.name} ended by itself:\n{lines}")

    def fold(self) -> None:
        """Without Spark: apply what is on the buses."""
        if not self._spark:
            for side in self.sides.values():
                side.fold()

    def answers(self) -> Answers | None:
        """Return what Kafka says of everything that there are samples of; None if it does not say it now."""
        try:
            return self.kafka.answers()
        except Unanswered as reason:
            self._say(f"    unanswered: {str(reason)[:200]}")
            return None

    def sampled(self) -> dict[str, list[dict[str, Any]]]:
        side = self.sides[LOG]
        if not self._spark:
            side.fold_samples()
        return {name: side.rows(name) for name in TABLES}

    # ------------------------------------------------------------------ between the faults, and after them

    def restore(self) -> None:
        """Resume and start every node that is not held, and start again those that were held for long enough."""
        self.sandbox.proxy.release_all()
        nodes = (*self.sandbox.controller_ids, *self.sandbox.broker_ids)
        for node in nodes:
            self.sandbox.resume(node)
        self.held = {broker: left - 1 for broker, left in self.held.items() if left > 0}
        for node in nodes:
            if node not in self.held and self.sandbox.pid(node) is None:
                self._say(f"    start {node}")
                self.sandbox.start(node)

    def recover(self, seconds: float = SECONDS_TO_RECOVER) -> None:
        """Wait until all replicas are in sync."""

        def lacking() -> list[str]:
            described = self.sandbox.admin.describe()
            return [f"{key[0]}-{key[1]} {each}" for key, each in described.items() if each.isr != set(each.replicas)]

        try:
            wait_until(lambda: not lacking(), "all replicas to be in sync", seconds=seconds, every=0.5)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {'; '.join(lacking())}") from None

    def recover_soon(self) -> None:
        """Wait a moment for it: a broker that is held never comes."""
        with suppress(TimeoutError):
            self.recover(30.0 if not self.held else 5.0)
