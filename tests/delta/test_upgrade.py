"""A job goes on with tables, a bus and a configuration of b3f2e02: no row, no record and no total is lost.

The expected rows were written by b3f2e02 itself (``tests/fixtures/b3f2e02/README.md``). Product code is used in
``OldJob`` and in the test of the configuration only.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import Damaged
from streaming.contracts.observations import Channel
from streaming.delta.change_reader import ChangeReader
from streaming.errors import ConfigurationError
from streaming.jobs.driver.batch import ReplicationBatch
from streaming.jobs.driver.incidents import IncidentsBatch
from streaming.jobs.driver.newest import NewestBatch
from streaming.jobs.queries import Places
from streaming.jobs.registry import QUERIES
from streaming.jobs.reporting import Reporter
from streaming.jobs.streams.bus_rows import SCHEMA
from streaming.settings import load
from tests.plugins.old_layout import (
    CHANGES,
    FIXTURE,
    changes,
    commits,
    differences,
    facts,
    old_rows,
    raw,
    read,
    tables,
    unpack,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.plugins.old_layout import Row

CREATED = "topic_created"
BEGUN = frozenset({"under_replicated_began", "under_min_isr_began", "offline"})
# The wall clock, versions that an upgrade may move on, the wording of what is refused from now on, how the job was
# when it reported, and the notes of the incidents' fold to itself.
NOT_COMPARED = {
    "quarantine": ("quarantined_at", "reason"),
    "source_progress": ("as_of_version", "reported_at", "is_query_up", "restarts", "last_error"),
    "incidents": ("as_of_version", "carried"),
    # The old program gave no order at all where one partition cannot spare a broker, whatever the order.
    "broker_state": ("as_of_version", "restart_order"),
}
MERGED = ("incident_id", "merged_into")
"""What is compared of an incident that is part of another one: when it was found to be, newer rules say earlier."""
# Keys of the configuration of b3f2e02 that are refused now, in the order of the refusals: the old key and value as the
# file has them, what the sentence says to write, and what the key and its value are then.
REPLACED = (
    ('execution = "cluster"', 'execution = "distributed"', "job.execution", "distributed"),
    ('authority = "metadata_log"', 'primary_source = "metadata_log"', "collect.primary_source", "metadata_log"),
    ("versions = 200", "reader_minutes = 20.0", "tables.reader_minutes", 20.0),
)
DERIVED = (
    "replication_events", "partition_state", "broker_state", "cluster_state", "isr_reconciliation", "source_progress",
    "incidents",
)  # fmt: skip


@dataclass
class Watched:
    """What the reporter asks of a query that runs."""

    name: str
    batch: Any
    is_up: bool = True
    is_superseded: bool = False
    restarts: int = 0
    last_error: str | None = None

    @property
    def progress(self) -> Any:
        return self.batch

    @property
    def definition(self) -> Any:
        return QUERIES[self.name]


class OldJob:
    """The queries of this version on tables and a bus of b3f2e02, without Spark. Opening it upgrades the tables."""

    def __init__(self, directory: Path) -> None:
        self.tables, self._bus = directory / "tables", directory / "bus"
        self._reader = DirectoryReader(self._bus)
        self.replication = ReplicationBatch(self.tables)
        self._samples = {channel: NewestBatch(self.tables, channel) for channel in (Channel.OFFSETS, Channel.METRICS)}
        self._incidents = IncidentsBatch(self.tables, *facts()["gaps"])

    def position(self, source: str) -> int:
        return self.replication.position(source)

    def rows(self, channel: Channel, ends: dict[str, int] | None = None) -> pa.Table:
        """Give what a stream of the bus brings up to some ends, what was applied long ago included."""
        ends = ends or self._reader.end_positions(channel)
        starts = self._reader.start_positions(channel)
        return pa.Table.from_pylist([
            {
                "source": source, "position": item.position, "payload": item[1],
                "damage": item.reason if isinstance(item, Damaged) else None,
            }
            for source in sorted(ends)
            for item in self._reader.read(channel, source, starts[source], ends[source])
        ], schema=SCHEMA)  # fmt: skip

    def unread(self) -> dict[str, list[bytes]]:
        """Give the records of changes that were not applied, by source."""
        found: defaultdict[str, list[bytes]] = defaultdict(list)
        for row in self.rows(Channel.REPLICATION).to_pylist():
            if row["position"] > self.position(row["source"]):
                found[row["source"]].append(row["payload"])
        return found

    def read_on(self, batches: Iterable[dict[str, int]]) -> None:
        """Read the rest of the bus in these batches, and bring every table up to it."""
        for ends in batches:
            self.replication.apply(self.rows(Channel.REPLICATION, ends))
        for channel, batch in self._samples.items():
            batch.apply(self.rows(channel))
        self.replication.projections.project(self.replication.shared)
        self._write_incidents()
        queries = [Watched(Channel.REPLICATION, self.replication)]
        queries += [Watched(channel, batch) for channel, batch in self._samples.items()]
        places = Places(bus=self._bus, tables=self.tables, checkpoint=self._bus.parent / "checkpoint")
        Reporter(queries, places).report()  # type: ignore[arg-type]

    def _write_incidents(self) -> None:
        for _, rows in ChangeReader(self.tables / CHANGES, self._incidents.version).poll():
            self._incidents.apply(rows)


@pytest.fixture(params=["killed", "settled"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with ``tables`` and ``bus``, as a kill left them, or as a clean stop does."""
    unpack(tmp_path, settled=request.param == "settled")
    return tmp_path


def at_kill() -> list[Row]:
    return [change["row"] for change in changes() if change["version"] <= facts()["version"]]


def by_thing(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Group changes by what they are about, each group in the order that is given."""
    found: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        source = row["source"] if row["subject"] == "source" else None
        about = (row.get(name) for name in ("cluster_id", "subject", "topic_id", "partition", "broker"))
        found[*about, source].append(row)
    return found


def age(row: Row) -> tuple[Any, ...]:
    """Order changes of one thing as b3f2e02 did where the log has no entry of their commits any more."""
    cluster = row.get("cluster_after", {})
    return (
        row.get("after", {}).get("change_number", 0), row["occurred_not_after"], row["collected_at"],
        cluster.get("controller_epoch", -1), cluster.get("has_baseline", False), row["sequence"], row.get("offset", -1),
    )  # fmt: skip


def in_order(tables: Path) -> list[tuple[int, Row]]:
    """Give every change with the version of its commit, -1 where it is not recorded; each thing's oldest change first.

    Rows that have their version and their ordinal in it come in that order. Where the table has no such columns, the
    log gives the commits since the kill.
    """
    whole = DeltaTable(str(tables / CHANGES))
    if "version" in {item.name for item in whole.schema().fields}:
        found = raw(tables, CHANGES)
        places = zip(found["version"].to_pylist(), found["ordinal"].to_pylist(), strict=True)
        placed = list(zip(places, old_rows(found, CHANGES), strict=True))
        placed.sort(key=lambda each: (-1, *age(each[1])) if each[0][0] is None else each[0])
        return [(-1 if place[0] is None else place[0], row) for place, row in placed]
    since = [(version, row) for version, rows in commits(tables / CHANGES, facts()["version"]) for row in rows]
    later = {json.dumps(row) for _, row in since}
    before = [row for row in read(tables, CHANGES) if json.dumps(row) not in later]
    return [*((-1, row) for row in sorted(before, key=age)), *since]


def test_opening_old_tables_changes_no_row_that_only_they_have(old: Path) -> None:
    OldJob(old)

    assert differences(read(old / "tables", CHANGES), at_kill()) == {}
    for name, rows in tables("before").items():
        if name not in DERIVED:
            assert differences(read(old / "tables", name), rows) == {}, name


def test_a_job_goes_on_where_the_old_one_was_killed(old: Path) -> None:
    job = OldJob(old)

    logs = facts()["logs"][Channel.REPLICATION]
    assert {source: job.position(source) for source in logs} == {source: log["applied"] for source, log in logs.items()}
    assert Counter({source: len(records) for source, records in job.unread().items()}) == Counter(facts()["unread"])


def test_every_table_holds_in_the_end_what_the_old_program_would_have_written(old: Path) -> None:
    final = {row["incident_id"] for row in read(old / "tables", "incidents") if "carried" not in row}
    after = dict(tables("after"))
    # What can still change is judged by the rules of today, which group and name it otherwise.
    after["incidents"] = [row for row in after["incidents"] if row["incident_id"] in final]
    OldJob(old).read_on(facts()["batches"])

    found = counted_alike(read(old / "tables", CHANGES))
    assert differences(found, counted_alike(change["row"] for change in changes())) == {}
    for name, rows in after.items():
        assert differences(comparable(name, now(old, name, final)), comparable(name, rows)) == {}, name


def now(old: Path, name: str, final: set[str]) -> list[Row]:
    """Return the rows of a table; of incidents those that were final for the old program."""
    return [row for row in read(old / "tables", name) if name != "incidents" or row["incident_id"] in final]


def counted_alike(rows: Iterable[Row]) -> list[Row]:
    """Leave out, at every depth, time without observation: the old program counted it only where something changed.

    And what has begun of a partition with its creation: the old program recorded it with the next change.
    """

    def alike(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: alike(item) for name, item in value.items() if name != "unknown_seconds"}
        if isinstance(value, list) and any(isinstance(item, dict) and item.get("event") == CREATED for item in value):
            return [alike(item) for item in value if item["event"] not in BEGUN]
        return value

    return [alike(row) for row in rows if not (row.get("event") in BEGUN and row.get("cause") == "created")]


def known(row: Row) -> Row:
    """Leave out a count that the old program took for 0 where no minimum is known; it is null now."""
    is_unknown = 0 < row.get("in_sync_partitions", 0) == row.get("unknown_min_isr_partitions")
    return row | {"would_go_under_min_isr": None} if is_unknown else row


def comparable(name: str, rows: list[Row]) -> list[Row]:
    """Return what old and new rows of a table have in common."""
    kept = [row if row.get("merged_into") is None else {key: row[key] for key in MERGED} for row in rows]
    return without(counted_alike(map(known, kept)), NOT_COMPARED.get(name, ("as_of_version",)))


def test_the_changes_keep_their_order_and_their_commits(old: Path) -> None:
    OldJob(old).read_on(facts()["batches"])

    found = [(version, *counted_alike([row])) for version, row in in_order(old / "tables")]
    recorded = [(change["version"], *counted_alike([change["row"]])) for change in changes()]
    rows_now, expected = by_thing(row for _, row in found), by_thing(row for _, row in recorded)
    assert set(rows_now) == set(expected)
    assert [thing for thing, rows in expected.items() if rows_now[thing] != rows][:3] == []
    new = [each for each in recorded if each[0] > facts()["version"]]
    assert commits_of(found[-len(new) :]) == commits_of(new)


def commits_of(changes: Iterable[tuple[int, Row]]) -> list[list[Row]]:
    """Cut changes where another commit begins; those of a commit lie in a file a day."""
    groups = ([row for _, row in group] for _, group in groupby(changes, key=itemgetter(0)))
    return [sorted(group, key=itemgetter("date")) for group in groups]


def test_however_the_rest_is_cut_events_and_partitions_are_the_same(old: Path) -> None:
    OldJob(old).read_on(facts()["batches"][-1:])

    for name in ("replication_events", "partition_state"):
        left_out = ("as_of_version",)
        found = without(counted_alike(read(old / "tables", name)), left_out)
        assert differences(found, without(counted_alike(tables("after")[name]), left_out)) == {}, name


def test_a_job_that_reads_on_twice_applies_nothing_twice(old: Path) -> None:
    OldJob(old).read_on(facts()["batches"][:5])
    OldJob(old).read_on(facts()["batches"])

    found = counted_alike(read(old / "tables", CHANGES))
    assert differences(found, counted_alike(change["row"] for change in changes())) == {}
    assert (
        differences(
            without(read(old / "tables", "quarantine"), NOT_COMPARED["quarantine"]),
            without(tables("after")["quarantine"], NOT_COMPARED["quarantine"]),
        )
        == {}
    )


def test_the_old_configuration_is_refused_key_by_key_until_it_says_the_same_in_new_words(tmp_path: Path) -> None:
    file = tmp_path / "isrwatch.toml"
    text = (FIXTURE / "isrwatch.toml").read_text()
    for _ in REPLACED:
        file.write_text(text)
        with pytest.raises(ConfigurationError) as refused:
            load(file)
        old, new, key, _ = next(it for it in REPLACED if it[0] in text and it[2] in str(refused.value))
        assert new.split(" = ")[0] in str(refused.value), key
        text = text.replace(old, new)
    file.write_text(text)

    now = dict(flat(asdict(load(file))))
    renamed = {"collect.authority", "tables.versions", "job.execution"}
    expected = {key: value for key, value in flat(facts()["settings"]["given"]) if key not in renamed}
    expected |= {key: value for _, _, key, value in REPLACED}
    assert {key: now.get(key) for key in expected} == expected


def flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give keys with their sections, and their values; lists for tuples."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, list(value) if isinstance(value, tuple) else value
