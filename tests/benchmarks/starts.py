"""How long a job takes to start, and its CPU, with and without the archive of Spark's classes.

    python -m tests.benchmarks.starts [--runs 5]

Begins at the command, on the bus of a cluster of 1,000 partitions; ends when all three queries run, and again when the
first rows are in the tables. The job without the archive has an empty ``SPARK_CONF_DIR``, with which no archive is
used. The two take turns; medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import astuple, dataclass
from typing import Final

from streaming.commands import jars
from streaming.contracts.observations import Channel
from tests.benchmarks._cluster import SOURCE, Cluster, open_log
from tests.benchmarks._processes import cpu_seconds
from tests.benchmarks._running import installation, options

PARTITIONS: Final = 1000


@dataclass(frozen=True)
class Start:
    """Seconds from the command; CPU seconds of all processes until the first rows."""

    running: float
    first_rows: float
    cpu: float


def start(*, archived: bool) -> Start:
    """Start a job once, on folders of its own."""
    with installation() as pipeline, tempfile.TemporaryDirectory() as empty:
        Cluster(open_log(pipeline.bus, Channel.REPLICATION, SOURCE), PARTITIONS).send_snapshot()
        began = time.monotonic()
        environment = {} if archived else {"SPARK_CONF_DIR": empty}
        job = pipeline.start("job", "job", *pipeline.job_arguments(), **environment)
        pipeline.eventually(lambda: "running" in job.text(), "the job runs", job)
        running = time.monotonic() - began
        pipeline.eventually(lambda: pipeline.rows("partition_state"), "the first rows", job)
        return Start(running, time.monotonic() - began, cpu_seconds(job.pid).total())


def main() -> None:
    runs = options(__doc__, runs=5).runs
    jars.archive()
    starts: dict[bool, list[Start]] = {True: [], False: []}
    for _ in range(runs):
        for archived, found in starts.items():
            found.append(start(archived=archived))
    medians = {
        archived: [statistics.median(each) for each in zip(*map(astuple, found), strict=True)]
        for archived, found in starts.items()
    }
    print(f"{'':24}  with archive  without  ratio")
    names = ("queries run", "first rows", "CPU until then")
    for name, used, unused in zip(names, medians[True], medians[False], strict=True):
        print(f"{name:24} {used:11.1f} s {unused:6.1f} s  {used / unused:5.2f}")


if __name__ == "__main__":
    main()
