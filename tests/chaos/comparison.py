"""After a run: every table against the model's own trace, and against an undisturbed fold of the same bus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from exporters.read_model.base_snapshots import put_first
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.reader import state_of_changes
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import PARTITION_CHANGES, TABLES
from streaming.delta.changes.bases import bases_of, read_base
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.storage import open_table
from streaming.delta.log.writer import GENERATION
from streaming.delta.progress import ProgressTable
from streaming.delta.store.place import Place
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.settings import JobSettings
from tests.chaos.stage import ChaosStage
from tests.end_to_end.model_trace import recorded, steps
from tests.exporters.meaning import of_moment
from tests.plugins.logs import rows_of_log
from tests.plugins.pipeline import rows_of

# How batches were cut, and which of two equal collectors was applied first, stands in the tables, and may differ.
EVERYWHERE = frozenset({"as_of_version", "quarantined_at", "version", "ordinal", "committed_at"})
SAMPLED = (
    "replica_offsets", "groups", "group_offsets", "transactions", "log_directories", "quorum_members", "broker_metrics",
    "topic_settings", "broker_settings", "broker_features",
)  # fmt: skip
DIFFERS = {
    "partition_changes": frozenset({"source", "sequence", "cluster_after"}),
    "replication_events": frozenset({"source"}),
    "source_progress": frozenset({"duplicates", "bus_end", "behind_bytes", "is_query_up", "restarts", "last_error"})
    | {"reported_at"},
    "incidents": frozenset({"carried"}),  # names versions
    "conditions": frozenset({"began_version", "ended_version"}),
    **{name: frozenset({"source"}) for name in SAMPLED},
}
TRUTH = frozenset({"partition_changes", "replication_events"})
# From one sample to the next: of two collectors, whose samples those are depends on which log was applied first.
BETWEEN_SAMPLES = frozenset({
    "behind_since", "lag_per_second", "lag_measured_since", "lag_measured_from", "seconds_until_caught_up",
    "bytes_per_second", "bytes_measured_since", "bytes_measured_from", "seconds_until_full",
})  # fmt: skip
# Meters are counted from the moment that a job has both a first sample and the change log.
NOT_COMPARED = frozenset({"isr_reconciliation", "past_states"})
"""When a state is kept for the past depends on when rounds ended; what it is does not (``_of_past_states``)."""


def undisturbed(bus: Path, tables: Path) -> None:
    """Apply a whole bus at once, without Spark and without harm."""
    replication = ReplicationBatch(tables)
    replication.apply(_whole(bus, Channel.REPLICATION))
    replication.project()
    states, version = replication.sources()
    ProgressTable(tables, Channel.REPLICATION).replace([(state, SourceLag()) for state in states], version)
    settings = JobSettings()
    incidents = IncidentsBatch(tables, settings.incident_gap, settings.incident_rolling_gap)
    incidents.apply(ChangeReader(tables / PARTITION_CHANGES.name).poll())
    samples = SampleBatch(tables)
    samples.apply(_whole(bus, Channel.SAMPLES))
    ProgressTable(tables, Channel.SAMPLES).replace([(state, SourceLag()) for state in samples.sources()[0]], None)


def _whole(bus: Path, channel: Channel) -> pa.Table:
    reader = DirectoryReader(bus)
    return pa.Table.from_batches([
        batch
        for source in reader.end_positions(channel)
        for batch in rows_of_log(reader, channel, source)
    ])  # fmt: skip


def differences(stage: ChaosStage, expected: Path) -> Iterator[str]:
    tables = stage.pipeline.tables
    of_bus = {"quarantine"} if stage.lost_bus else set()
    # Rounds of one collector follow each other; of two, it depends on the order of their logs whose are compared.
    of_copies = {"broker_speed", "sampled_conditions"} if stage.copies else set[str]()
    for name in TABLES.keys() - NOT_COMPARED - of_bus - of_copies:
        # Numbers of incidents jump where the bus may have lost something.
        but = {"quarantined", "short_id"} if stage.lost_bus else set[str]()
        if stage.has_jumped and (stage.lost_bus or stage.copies):
            # The truth keeps when a change was collected first, as the clock was then; the bus of that time is gone, or
            # another collector, whose clock was right, has published the same change.
            but |= {"collected_at"} if name in TRUTH else set()
            but |= BETWEEN_SAMPLES if stage.copies else set()
        yield from _of_table(name, tables, expected, frozenset(but))
    actual, expected_steps = recorded(rows_of(tables, "partition_changes")), steps(stage.source.trace())
    yield from _first("trace of the model", [step[:-1] for step in actual], [step[:-1] for step in expected_steps])
    yield from _of_events(tables)
    yield from _of_past_states(tables)
    yield from _of_short_ids(stage)
    yield from _of_quarantine(stage)
    # With copies the order of equals decides which count as duplicates; those of a lost bus are not there to be counted
    if not stage.copies and not stage.lost_bus:
        yield from _of_duplicates(tables, expected)
    yield from _of_generations(tables)


def all_differences(tables: Place, expected: Place) -> Iterator[str]:
    """Compare every table with that of an undisturbed fold, of sources that may have reported several clusters.

    Of such a source the batch that had both decides up to where the first of them is said to be applied.
    """
    for name in sorted(TABLES.keys() - NOT_COMPARED):
        but = {"position", "log_id"} if name == "source_progress" else set[str]()
        yield from _of_table(name, tables, expected, frozenset(but))


def _of_table(name: str, tables: Place, expected: Place, but: frozenset[str]) -> Iterator[str]:
    yield from _first(name, _essence(name, rows_of(tables, name), but), _essence(name, rows_of(expected, name), but))


def _essence(name: str, rows: list[dict[str, Any]], but: frozenset[str]) -> list[str]:
    dropped = EVERYWHERE | DIFFERS.get(name, frozenset()) | but
    kept = [{key: value for key, value in row.items() if key not in dropped} for row in rows]
    return [json.dumps(row, default=str) for row in kept if _is_compared(row)]


def _is_compared(row: dict[str, Any]) -> bool:
    """Leave out what depends on cuts and interleaving: rows of sources, and of clusters without an event.

    Progress of samples is written by the job as it runs, not by their batches.
    """
    if "subject" in row and "event_id" in row:
        return bool(row["subject"] != "source")
    if "subject" in row and "events" in row:
        return bool(row["subject"] != "source" and (row["subject"] != "cluster" or row["events"]))
    return row.get("channel") in (None, Channel.REPLICATION) or "raw" in row


def _first(what: str, actual: list[Any], expected: list[Any]) -> Iterator[str]:
    surplus, missing = Counter(actual) - Counter(expected), Counter(expected) - Counter(actual)
    if surplus or missing:
        yield (
            f"{what}: {surplus.total()} rows too many, {missing.total()} missing of {len(expected)}"
            f"\n  too many: {min(surplus, default=None)}\n  missing:  {min(missing, default=None)}"
        )


def _of_events(tables: Path) -> Iterator[str]:
    changes = rows_of(tables, "partition_changes")
    expected = [event["event_id"] for row in changes for event in row["events"] or ()]
    events = [row["event_id"] for row in rows_of(tables, "replication_events")]
    yield from _first("events of the changes", events, expected)
    yield from (f"event {event} {count} times" for event, count in Counter(expected).items() if count > 1)


def _of_past_states(tables: Path) -> Iterator[str]:
    """Each state that was kept for the past is that of the changes up to its version."""
    kept, changes = (open_table(tables / name) for name in ("past_states", "partition_changes"))
    for base in [] if kept is None or changes is None else bases_of(kept):
        found, expected = SnapshotDraft(ReplicationSnapshot()), state_of_changes(changes, base.version)
        put_first(found, read_base(tables / "past_states", base))
        actual, due = (without_counts(of_moment(each.finish(0, 0, 0))) for each in (found, expected))
        if actual != due:
            clusters = [key for key in due if actual.get(key) != due[key]]
            yield f"past_states: the state of version {base.version} differs in {clusters}"


def without_counts(clusters: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out how often brokers left ISRs, which the changes up to a version do not have once history expired."""
    return {key: {**each, "departures": None} for key, each in clusters.items()}


def _of_short_ids(stage: ChaosStage) -> Iterator[str]:
    """No short id is of two incidents, nor was in tables that an older copy has replaced."""
    now = {(row["short_id"], row["incident_id"]) for row in rows_of(stage.pipeline.tables, "incidents")}
    incidents = Counter(short_id for short_id, _ in now | stage.short_ids)
    yield from (f"{short_id} was given to {count} incidents" for short_id, count in incidents.items() if count > 1)


def _of_quarantine(stage: ChaosStage) -> Iterator[str]:
    """The first records of each source and kind of reason are kept whole; of the others the number must be right."""
    rows = rows_of(stage.pipeline.tables, "quarantine")
    kept = Counter((row["channel"], row["raw"]) for row in rows if row["raw"] is not None)
    yield from _first("what is kept of what was refused", list((kept - stage.refused).elements()), [])
    counted, refused = Counter(), Counter()
    for row in rows:
        counted[row["channel"]] += row["records"]
    for (channel, _), records in stage.refused.items():
        refused[channel] += records
    yield from _first("how much was refused", list(counted.elements()), list(refused.elements()))


def _of_duplicates(tables: Path, expected: Path) -> Iterator[str]:
    actual, undisturbed_sum = (
        sum(row["duplicates"] for row in rows_of(place, "source_progress")) for place in (tables, expected)
    )
    yield from _first("duplicates of all sources", [actual], [undisturbed_sum])


def _of_generations(tables: Path) -> Iterator[str]:
    """A driver that was replaced never writes again: generations only grow."""
    newest = 0
    for commit in sorted((tables / "partition_changes" / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            transaction = json.loads(line).get("txn", {})
            if transaction.get("appId") == GENERATION:
                if transaction["version"] < newest:
                    yield f"{commit.name} was written by generation {transaction['version']}, after {newest}"
                newest = max(newest, transaction["version"])
