"""What passes the driver while executors fold, and what a changed row costs in each part, by the number of clusters.

    python -m tests.benchmarks.shards [--clusters 1 10 50] [--partitions 100000] [--changed 5000]

The driver's part of the job runs in this process, and each task in a process of its own, as an executor with one core
has it, but without Spark: rows are made where they are folded, so this process sees what a driver would. Clusters are
reported one after the other, each for the first time, by executors that end afterwards; so a machine need not hold the
state of all of them. Then some partitions of one cluster change.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pyarrow as pa

from streaming.bus.kafka.reader import KafkaReader, TopicOffsets
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.observations import Channel
from streaming.jobs.shards import workers
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.task import FoldOnExecutors
from streaming.runtime.memory import return_freed_memory
from streaming.settings import KafkaBusSettings
from tests.benchmarks._cluster import CLUSTER, CLUSTER_ID, SOURCE, Cluster
from tests.benchmarks._running import child, options

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

    from streaming.jobs.shards.task import ShardResult
    from tests.plugins.executors import Work

HEADROOM: Final = 12
ROUNDS: Final = 5
NUMBERS: Final = pa.table({"id": pa.array([0], pa.int64())})
PARTS: Final = {"decode": "read and decode", "fold": "fold", "write": "write Parquet, follow incidents"}


class TaskReport(NamedTuple):
    """What an executor reports of a task: the memory that it has left, its CPU, and the result."""

    memory: int
    seconds: float
    content: bytes


def memory() -> int:
    """Return the bytes that this process has to itself."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))


class Executor:
    """One cluster, and the tasks on its rows. Runs in a process of its own."""

    def __init__(self, number: int, partitions: int) -> None:
        self._number = number
        self._cluster = Cluster(cast("Any", None), partitions)
        self._at, self._offset = 0, 0

    def rows(self, changed: int) -> pa.Table:
        """Make the rows of the first report, or of so many changes."""
        told = self._cluster.changes(range(changed)) if changed else self._cluster.snapshot()
        names = {CLUSTER_ID: f"{self._number:022d}", SOURCE: f"{SOURCE}-{self._number}"}
        names |= {f'"cluster":"{CLUSTER}"': f'"cluster":"{CLUSTER}-{self._number}"'}
        columns: dict[str, list[Any]] = {name: [] for name in ("position", "end", "payload", "offset")}
        for payload in told:
            for old, new in names.items():
                payload = payload.replace(old.encode(), new.encode(), 1)  # noqa: PLW2901 - one name after the other
            end = self._at + HEADROOM + len(payload)
            for name, value in zip(columns, (self._at, end, payload, self._offset), strict=True):
                columns[name].append(value)
            self._at, self._offset = end, self._offset + 1
        count = len(told)
        return pa.table({
            "source": [f"{SOURCE}-{self._number}"] * count,
            "position": pa.array(columns["position"], pa.int64()),
            "end": pa.array(columns["end"], pa.int64()),
            "log_id": pa.array([1] * count, pa.int64()),
            "runs": ["1"] * count,
            "damage": pa.nulls(count, pa.string()),
            "payload": pa.array(columns["payload"], pa.binary()),
            "partition": pa.array([self._number] * count, pa.int32()),
            "offset": pa.array(columns["offset"], pa.int64()),
        })  # fmt: skip


def execute(pipe: Pipe, number: int, partitions: int) -> None:
    """Run tasks until the driver has no more."""
    return_freed_memory()
    executor = Executor(number, partitions)
    with suppress(EOFError):
        while True:
            work, changed = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from our own driver
            rows = NUMBERS if changed is None else executor.rows(changed)
            began, before = time.process_time(), memory() - rows.nbytes
            (result,) = work(iter(rows.to_batches()))
            seconds = time.process_time() - began
            del rows
            pipe.send(TaskReport(memory() - before, seconds, result[workers.RESULT][0].as_py()))


class Frame:
    """One task, on the rows that its executor makes; counts what comes back.

    Attributes:
        newest: stands for the session, too.
    """

    newest: Frame

    def __init__(self, pipe: Pipe, changed: int | None) -> None:
        self._pipe, self._changed = pipe, changed
        self.report = TaskReport(0, 0.0, b"")
        self.sent = 0
        Frame.newest = self

    def other(self) -> Frame:
        """Give a frame of the same executor without rows."""
        return Frame(self._pipe, None)

    def mapInArrow(self, work: Work, _schema: str) -> Frame:  # noqa: N802 - as Spark names it
        content = pickle.dumps((work, self._changed))
        self.sent = len(content)
        self._pipe.send_bytes(content)
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - as Spark names it
        self.report = self._pipe.recv()
        return pa.table({workers.RESULT: pa.array([self.report.content], pa.binary())})

    @property
    def result(self) -> ShardResult:
        """The result of the task."""
        return cast("ShardResult", pickle.loads(self.report.content))  # noqa: S301 - from our own executor


class Session:
    """What is asked of Spark between the batches goes to the executor of the newest one."""

    def range(self, *_numbers: int) -> Frame:
        """Give a frame for the clusters that no row is of: all that wait are one group."""
        return Frame.newest.other()


class Bus(KafkaReader):
    """Topics that are not asked for."""

    def __init__(self) -> None:
        super().__init__(KafkaBusSettings(bootstrap_servers="nowhere:1"))
        self.look(Channel.REPLICATION)

    def look(self, channel: Channel) -> TopicOffsets:  # noqa: ARG002 - the same for each
        return TopicOffsets("bench", {}, {})

    def identity(self, channel: Channel) -> str:  # noqa: ARG002 - the same for each
        return "bench"


def main() -> None:
    arguments = options(__doc__, clusters=[1, 10, 50], partitions=100_000, changed=5_000)
    shown = set(arguments.clusters)
    with tempfile.TemporaryDirectory() as folder:
        batch = ReplicationBatch(
            Path(folder), workers=FoldOnExecutors(0.0, cast("Any", Session())), bus=Bus(), gaps=IncidentGaps()
        )
        print("clusters  partitions  to the executor  to the driver  driver's memory  a partition in its shard")
        for number in range(max(shown)):
            with ExitStack() as stack:
                pipe, _ = stack.enter_context(child(execute, number, arguments.partitions))
                frame = Frame(pipe, 0)
                batch.apply(cast("Any", frame))
                if number + 1 in shown:
                    each = frame.report.memory / arguments.partitions
                    print(
                        f"{number + 1:8}{(number + 1) * arguments.partitions:12,}{frame.sent:14,} B"
                        f"{len(frame.report.content):13,} B{memory() / 1e6:14,.0f} MB{each:18,.0f} B",
                        flush=True,
                    )
                if number + 1 == max(shown):
                    changes(batch, pipe, arguments.changed)


def changes(batch: ReplicationBatch, pipe: Pipe, changed: int) -> None:
    """Print what changes of one cluster cost in each part, the mean of some batches."""
    stages: Counter[str] = Counter()
    driver = executor = 0.0
    for _ in range(ROUNDS):
        frame = Frame(pipe, changed)
        began = time.process_time()
        batch.apply(cast("Any", frame))
        driver += time.process_time() - began
        executor += frame.report.seconds
        stages.update(frame.result.result.stages)
    a_row = 1e6 / ROUNDS / changed
    print(f"\n{changed:,} changed rows of one cluster: {(driver + executor) * a_row:.0f} microseconds of CPU a row")
    for stage, name in PARTS.items():
        print(f"  {name:34}{executor * a_row * stages[stage] / stages.total():8.1f}")
    print(f"  {'commit, in the driver':34}{driver * a_row:8.1f}")
    for shards in (1, 2, 4, 8):
        share = driver * shards / (driver * shards + executor)
        print(f"  {shards} shards at once: the driver takes {share:.1%} of the time (computed)")


if __name__ == "__main__":
    main()
