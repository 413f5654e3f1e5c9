"""Where the drill is played: a real Kafka with a proxy and a disk of its own, producers, collector and job."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import DEFAULT, plan_cluster, random_id
from deploy.sandbox.waiting import wait_until
from streaming.durations import duration_text
from tests.plugins.pipeline import Pipeline
from tests.topic_writer import TopicWriter

BROKERS: Final = (1, 2, 3, 4, 5)
DISK_BROKER: Final = 4
ORDERS, PAYMENTS = "orders", "payments"
TOPICS: Final = {ORDERS: 12, PAYMENTS: 6}
REPLICATION_FACTOR: Final = 3
DISK_BYTES: Final = 256 << 20


class DrillCluster(NamedTuple):
    """How a cluster is set up.

    Attributes:
        timeouts: properties of Kafka.
        gap_seconds: after so long without trouble an incident is closed; turns of a rolling restart may be three times
            as far apart.
        combined: the controllers are brokers, too.
    """

    timeouts: tuple[tuple[str, str], ...]
    gap_seconds: int = 8
    combined: bool = False


_SHORT: Final = (("broker.session.timeout.ms", "4000"), ("replica.lag.time.max.ms", "6000"))
SHORT: Final = DrillCluster(_SHORT)
COMBINED: Final = DrillCluster(_SHORT, combined=True)
DEFAULTS: Final = DrillCluster(
    timeouts=(
        ("broker.session.timeout.ms", "9000"),
        ("broker.heartbeat.interval.ms", "2000"),
        ("replica.lag.time.max.ms", "30000"),
    ),
    gap_seconds=20,
)
"""Kafka's own timeouts, which the sandbox shortens otherwise."""


class DrillStage:
    """One cluster and one installation of isrwatch. A context manager; leaves no process and no mount behind.

    Args:
        directory: empty; everything lies in it.
        cluster: how the cluster is set up.
        version: of Kafka.
        polled: the metadata log is not read.
    """

    def __init__(self, directory: Path, cluster: DrillCluster, version: str = DEFAULT, *, polled: bool = False) -> None:
        self._primary = "poll" if polled else "auto"
        self.gap_seconds = cluster.gap_seconds
        timeouts = dict(cluster.timeouts)
        self.lag_seconds = int(timeouts["replica.lag.time.max.ms"]) / 1000
        self.session_seconds = int(timeouts["broker.session.timeout.ms"]) / 1000
        self.disk = directory / "disk"
        root = directory / "sandbox"
        own = {DISK_BROKER: {"log.dirs": f"{root / f'node-{DISK_BROKER}' / 'data'},{self.disk}"}}
        plan = plan_cluster(
            brokers=len(BROKERS),
            controllers=3,
            properties=timeouts,
            node_properties=own,
            proxy=True,
            combined=cluster.combined,
            version=version,
        )
        self.sandbox = Sandbox(plan, root)
        self.pipeline = Pipeline(directory)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def _set_up(self, stack: ExitStack) -> None:
        stack.callback(self.pull_disk)
        self.insert_disk()
        stack.enter_context(self.sandbox)
        stack.callback(self.pipeline.close)
        config = self.pipeline.directory / "isrwatch.toml"
        config.write_text(
            f'[cluster]\nname = "drill"\nbootstrap_servers = "{self.sandbox.bootstrap_servers}"\n'
            f'[collect]\nprimary_source = "{self._primary}"\noffsets_interval = "5s"\nheartbeat_interval = "1s"\n'
            f'[job]\nincident_gap = "{duration_text(self.gap_seconds)}"\n'
            f'incident_rolling_gap = "{duration_text(3 * self.gap_seconds)}"\n'
        )
        self.pipeline.collect("--config", str(config))
        job = self.pipeline.start("job", "job", "--config", str(config), *self.pipeline.job_arguments())
        self.pipeline.eventually(lambda: "running" in job.text(), "the job runs", job)
        for topic, partitions in TOPICS.items():
            assignment = [_replicas(number) for number in range(partitions)]
            self.sandbox.admin.create_topic(topic, assignment=assignment, configs={"min.insync.replicas": "2"})
            writer = TopicWriter(self.sandbox.bootstrap_servers, topic, acks="all", record_bytes=2000)
            stack.enter_context(writer)
        self.pipeline.eventually(lambda: self.pipeline.rows("partition_changes"), "a first commit", job)

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ the disk

    def insert_disk(self) -> None:
        """Mount a disk that is formatted for its broker, and empty."""
        self.disk.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "drill", str(self.disk)]
        subprocess.run(mount, check=True)
        (self.disk / "meta.properties").write_text(
            f"version=1\ncluster.id={self.sandbox.cluster_id}\nnode.id={DISK_BROKER}\ndirectory.id={random_id()}\n"
        )

    def pull_disk(self) -> None:
        """Take the disk away: the next file that Kafka opens on it is not there."""
        if self.disk.is_mount():
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
        if self.disk.exists():
            self.disk.rmdir()

    # ------------------------------------------------------------------ waiting

    def wait_full(self, seconds: float = 240.0) -> None:
        """Wait until every partition has all its replicas in sync."""

        def is_full() -> bool:
            described = self.sandbox.admin.describe()
            return all(partition.isr == set(partition.replicas) for partition in described.values())

        wait_until(is_full, "every ISR to be full", seconds=seconds, every=0.5)

    def wait_left(self, broker: int, seconds: float = 120.0) -> None:
        def has_left() -> bool:
            return all(broker not in partition.isr for partition in self.sandbox.admin.describe().values())

        wait_until(has_left, f"broker {broker} to leave every ISR", seconds=seconds, every=0.5)

    def wait_quiet(self) -> None:
        """Wait until whatever was going on is closed."""
        time.sleep(3 * self.gap_seconds + 3)

    def incidents(self, began: int, ended: int) -> list[dict[str, Any]]:
        """Return the incidents of what happened between two times, in microseconds, that were not merged into others.

        The one before is closed by then. It counts when its newest change was: of a poll the first one may have been
        as early as the poll before.
        """
        return [
            row
            for row in self.pipeline.rows("incidents")
            if row["merged_into"] is None
            and began <= row["updated_at"].timestamp() * 1e6
            and row["opened_at"].timestamp() * 1e6 <= ended
        ]

    def controller(self) -> int:
        def active() -> list[int]:
            return [row["controller"] for row in self.pipeline.rows("cluster_state") if row["controller"] is not None]

        (controller,) = self.pipeline.eventually(active, "an active controller")
        return int(controller)

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Iterate over the partitions that the drill has made."""
        return ((topic, number) for topic, count in TOPICS.items() for number in range(count))


def _replicas(number: int) -> list[int]:
    """Place the replicas of a partition so that every pair of brokers shares some."""
    step = 1 + number // len(BROKERS) % 2
    return [BROKERS[(number + each * step) % len(BROKERS)] for each in range(REPLICATION_FACTOR)]
