"""What a commit to the truth costs when there are many: 10,000 small ones, with the upkeep that keeps them flat.

    python -m tests.benchmarks.commits [--commits 10000]

The derived tables are true of a newer version each hundred commits, as behind a running job. Printed are medians of 50
commits around the 100th, the 1,000th, ..., what reading the table, opening it and a poll of a tail cost there, how
large it is, and the pauses that upkeep makes.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
    SOURCE_PROGRESS,
)
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import COMMITS_BETWEEN_ROUNDS, Maintenance
from streaming.delta.log.queries import select
from streaming.delta.log.writer import APPEND, Writer
from tests.benchmarks._running import options, timed
from tests.delta.test_change_log import changed

WINDOW: Final = 50
ROWS: Final = 10
BETWEEN_PROJECTIONS: Final = 100
POLLED: Final = 20
DERIVED: Final = (REPLICATION_EVENTS, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)


@dataclass
class Measured:
    """Seconds of every commit, and what each stop on the way looked like."""

    plain: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    medians: dict[int, float] = field(default_factory=dict)


def run(directory: Path, commits: int, stops: set[int]) -> Measured:
    _, rows = changed()
    rows = rows.slice(0, ROWS)
    path = directory / PARTITION_CHANGES.name
    truth, derived, measured = ChangeLog(directory), Derived(directory), Measured()
    for number in range(1, commits + 1):
        seconds = timed(lambda position=number: truth.commit(rows, {"a": position}))  # type: ignore[misc]  # typeshed
        (measured.plain if number % COMMITS_BETWEEN_ROUNDS else measured.rounds).append(seconds)
        if number in stops:
            measured.medians[number] = statistics.median(measured.plain[-WINDOW:])
            tell(number, measured.medians[number], path)
        if number % BETWEEN_PROJECTIONS == 0:
            derived.follow(truth.version)
    return measured


class Derived:
    """The tables that derive from the truth, told that they are true of a version: their rows do not matter here."""

    def __init__(self, directory: Path) -> None:
        self._writers = [Writer.opened(directory, table) for table in DERIVED]
        self._upkeep = [Maintenance(writer) for writer in self._writers]

    def follow(self, version: int) -> None:
        for writer, definition, upkeep in zip(self._writers, DERIVED, self._upkeep, strict=True):
            writer.write(arrow_schema(definition).empty_table(), APPEND, {PARTITION_CHANGES.name: version})
            upkeep.after_commit()


def tell(number: int, median: float, path: Path) -> None:
    opened = timed(lambda: DeltaTable(str(path)))
    table = DeltaTable(str(path))
    tail = ChangeReader(path, table.version() - POLLED)
    polled = timed(tail.poll) / POLLED
    read = timed(lambda: select(table, PARTITION_CHANGES))
    files = [file for file in path.rglob("*") if file.is_file()]
    entries = sum(file.parent.name == "_delta_log" for file in files)
    print(
        f"commit {number:6,}: {median * 1000:5.1f} ms; open {opened * 1000:5.1f} ms, read {read * 1000:6.1f} ms "
        f"({table.count():,} rows in {len(table.file_uris())} files), poll of one version {polled * 1000:4.1f} ms; "
        f"{entries} files of log, {sum(file.stat().st_size for file in files) / 1e6:.0f} MB",
        flush=True,
    )


def summary(measured: Measured) -> None:
    everything = sorted(measured.plain + measured.rounds)
    pauses = sorted(measured.rounds)
    if pauses:
        print(
            f"upkeep: {len(pauses)} rounds, a commit with one {statistics.median(pauses) * 1000:.0f} ms, "
            f"the longest {pauses[-1] * 1000:.0f} ms; {sum(pauses) / sum(everything):.0%} of all time"
        )
    slow = everything[int(len(everything) * 0.999)]
    print(f"all commits: p50 {statistics.median(everything) * 1000:.1f} ms, p99.9 {slow * 1000:.0f} ms")
    (first, *_, last) = sorted(measured.medians)
    ratio = measured.medians[last] / measured.medians[first]
    print(f"the {last:,}th commit costs {ratio:.2f} x the {first}th")


def main() -> None:
    commits = options(__doc__, commits=10_000).commits
    stops = {stop for stop in (100, 500, 1_000, 2_000, 5_000, 10_000) if stop < commits} | {commits}
    with tempfile.TemporaryDirectory() as directory:
        summary(run(Path(directory), commits, stops))


if __name__ == "__main__":
    main()
