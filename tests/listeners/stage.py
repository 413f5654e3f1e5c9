"""Where listeners are recorded: a real cluster in a network of its own, written to and probed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import FIRST_CONTROLLER, plan_cluster, random_id
from deploy.sandbox.waiting import wait_until
from streaming.contracts.records import LeaderChange
from tests.listeners.changes import changes_of
from tests.listeners.metadata_log import batches, leader_epochs, written
from tests.listeners.network import Network, address
from tests.listeners.probes import Recorder, now
from tests.listeners.requests import of_broker, of_controller
from tests.topic_writer import TopicWriter

BROKERS: Final = (1, 2, 3)
ORDERS, MOVED, RISKY = "orders", "moved", "risky"
DISK_BROKER: Final = 3
SHORT_HEARTBEAT: Final = "500"
"""The interval of the sandbox, in milliseconds."""
_DISK_BYTES: Final = 256 << 20
_REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), (2, 1, 3), (3, 2, 1))
_BEFORE_SECONDS, _AFTER_SECONDS = 2.0, 3.0


class ListenerCluster(NamedTuple):
    """How a cluster is set up.

    Attributes:
        controllers: how many.
        timeouts: properties of Kafka.
        combined: the controllers are brokers, too.
        disk: broker 3 has a second disk, which can be pulled.
    """

    controllers: int = 1
    timeouts: tuple[tuple[str, str], ...] = (("broker.session.timeout.ms", "5000"), ("replica.lag.time.max.ms", "8000"))
    combined: bool = False
    disk: bool = False


class ListenerStage:
    """One cluster. A context manager; leaves no process behind.

    Args:
        directory: empty; everything lies in it.
        network: with all nodes.
        cluster: how it is set up.
        version: of Kafka.
    """

    def __init__(self, directory: Path, network: Network, cluster: ListenerCluster, version: str) -> None:
        self.network, self.version, self.cluster = network, version, cluster
        self.session_seconds = int(dict(cluster.timeouts)["broker.session.timeout.ms"]) / 1000
        self.lag_seconds = int(dict(cluster.timeouts)["replica.lag.time.max.ms"]) / 1000
        self.disk = directory / "disk"
        folder = directory / "sandbox"
        own = {"log.dirs": f"{folder / f'node-{DISK_BROKER}' / 'data'},{self.disk}"}
        plan = plan_cluster(
            brokers=len(BROKERS),
            controllers=cluster.controllers,
            properties=dict(cluster.timeouts),
            node_properties={DISK_BROKER: own} if cluster.disk else {},
            combined=cluster.combined,
            version=version,
            hosts={node: address(node) for node in nodes_of(cluster)},
        )
        self.sandbox = Sandbox(plan, folder, network.command)
        self._stack = ExitStack()
        self._steps: list[tuple[int, str]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self.cluster.disk:
                stack.callback(self.pull_disk)
                self.insert_disk()
            stack.enter_context(self.sandbox)
            stack.enter_context(self.written_topic(ORDERS, _REPLICAS, {"min.insync.replicas": "2"}))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.network.heal()
        self._stack.close()

    @contextmanager
    def written_topic(self, name: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]) -> Iterator[None]:
        """Create a topic, write to it, and delete it in the end."""
        admin, acks = self.sandbox.admin, "all" if name == ORDERS else "1"
        admin.create_topic(name, assignment=replicas, configs=configs)
        with TopicWriter(self.sandbox.bootstrap_servers, name, acks=acks, interval_seconds=0.2):
            yield
        if name != ORDERS:
            admin.delete_topic(name)

    def insert_disk(self) -> None:
        """Mount a disk that is formatted for its broker, and empty."""
        self.disk.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "listeners", str(self.disk)], check=True)
        (self.disk / "meta.properties").write_text(
            f"version=1\ncluster.id={self.sandbox.cluster_id}\nnode.id={DISK_BROKER}\ndirectory.id={random_id()}\n"
        )

    def pull_disk(self) -> None:
        """Take the disk away: the next file that Kafka opens on it is not there."""
        if self.disk.is_mount():
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
        if self.disk.exists():
            self.disk.rmdir()

    # ------------------------------------------------------------------ what is done

    def step(self, text: str) -> None:
        """Note that something is done now."""
        self._steps.append((now(), text))

    def wait_full(self, seconds: float = 120.0) -> None:
        """Wait until every partition has all its replicas in sync."""

        def is_full() -> bool:
            described = self.sandbox.admin.describe()
            return bool(described) and all(part.isr == set(part.replicas) for part in described.values())

        wait_until(is_full, "every ISR to be full", seconds=seconds, every=0.3)

    def wait_ended(self, node: int) -> None:
        """Wait until a process has ended, and note it."""
        wait_until(lambda: self.sandbox.pid(node) is None, f"the end of {node}", every=0.01)
        self.step(f"the process of {node} has ended")

    def prefer_leaders(self) -> None:
        """Give every partition its preferred leader."""
        for (topic, number), part in self.sandbox.admin.describe().items():
            if part.leader != part.replicas[0]:
                self.sandbox.admin.elect_preferred(topic, number)

        def is_preferred() -> bool:
            return all(part.leader == part.replicas[0] for part in self.sandbox.admin.describe().values())

        wait_until(is_preferred, "preferred leaders", every=0.2)

    def active_controller(self) -> int:
        """Return the node that leads the metadata quorum."""
        changes = (record for batch in batches(self.sandbox) for record in batch.records)
        return [record.controller for record in changes if isinstance(record, LeaderChange)][-1]

    # ------------------------------------------------------------------ recording

    def recorded(self, act: Callable[[ListenerStage], None]) -> dict[str, Any]:
        """Do something, and return what the listeners did and what the controllers wrote meanwhile."""
        self._steps = []
        described = self.sandbox.admin.describe()
        counts: dict[str, int] = {}
        for topic, number in described:
            if not topic.startswith("__"):
                counts[topic] = max(counts.get(topic, 0), number + 1)
        epochs = self._epochs(counts)
        began = now()
        recorder = Recorder(self._questions(counts, epochs))
        try:
            time.sleep(_BEFORE_SECONDS)
            act(self)
            time.sleep(_AFTER_SECONDS)
        finally:
            recorder.close()
        zero = self._steps[0][0]
        return {
            "longest_stall_ms": int(recorder.longest_stall * 1000),
            "session_ms": int(self.session_seconds * 1000),
            "lag_ms": int(self.lag_seconds * 1000),
            "heartbeat_ms": int(dict(self.cluster.timeouts).get("broker.heartbeat.interval.ms", SHORT_HEARTBEAT)),
            "brokers": list(BROKERS),
            "controllers": list(self.sandbox.controller_ids),
            "steps": [[(at - zero) // 1000, text] for at, text in self._steps],
            "log": written(self.sandbox, began, zero),
            "met": changes_of(recorder.seen, zero),
        }

    def _questions(self, counts: dict[str, int], epochs: dict[tuple[str, int], int]) -> dict[int, Any]:
        questions: dict[int, Any] = {}
        for node, ports in self.sandbox.plan.controllers.items():
            questions[node + (0 if node >= FIRST_CONTROLLER else FIRST_CONTROLLER - 1)] = (
                (ports.host, ports.client),
                of_controller(),
            )
        for node, ports in self.sandbox.plan.brokers.items():
            questions[node] = ((ports.host, ports.client), of_broker(counts, epochs, self.version))
        return questions

    def _epochs(self, counts: dict[str, int]) -> dict[tuple[str, int], int]:
        """Return the leader epoch of each partition, from the metadata log."""
        return {key: epoch for key, epoch in leader_epochs(self.sandbox).items() if key[0] in counts}


def nodes_of(cluster: ListenerCluster) -> list[int]:
    """Return the nodes of a cluster."""
    controllers = range(FIRST_CONTROLLER, FIRST_CONTROLLER + cluster.controllers)
    return [*BROKERS, *(() if cluster.combined else controllers)]
