"""What the past shows when it is applied anew is what the exporter showed then."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from exporters.backtest.replay import as_of, as_of_time, begins_at, replayed
from exporters.backtest.rule_files import CONDITION, has_history
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.contracts.conditions import RULES
from streaming.contracts.sampled_conditions import SAMPLED_RULES
from streaming.contracts.tables import CONDITIONS, SAMPLED_CONDITIONS
from streaming.delta.log.queries import open_ours, select
from streaming.delta.log.queries import plain as plain_times
from streaming.errors import ConfigurationError
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.settings import ExportSettings
from tests.exporters.histories import History, batches, logs

SECOND: Final = 1_000_000
NAMES: Final = frozenset(metric.name for metric in CATALOGUE if has_history(metric))
# The tables are made now, of observations of another time: none of it is stale.
SETTINGS: Final = ExportSettings(stale_after=1e9)


def shown(snapshot: ReplicationSnapshot, now: int) -> set[str]:
    blocks = Exposition(SETTINGS.stale_after).render(
        snapshot, ExporterHealth("", 0, 0.0, 0), now, ScrapeRequest(None, NAMES)
    )
    return set(plain(blocks).decode().splitlines())


def test_metrics_with_a_history_are_made_of_the_changes_alone(busy_cluster: Any) -> None:
    now = micros_now()
    (page,) = replayed(busy_cluster.directory, range(now, now + 1), NAMES, SETTINGS)
    assert set(page.splitlines()) == shown(TablesReader(busy_cluster.directory).refresh(), now)
    assert {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")} > {
        "kafka_replication_cluster_offline_partitions",
        "kafka_replication_cluster_state_age_seconds",
        "kafka_replication_broker_isr_departures_total",
        "kafka_topic_partition_in_sync_replica",
    }


@pytest.mark.parametrize("world", [2, pytest.param(1, marks=pytest.mark.long)])
def test_each_moment_shows_what_the_exporter_showed_then(tmp_path: Path, world: int) -> None:
    history = History(tmp_path, ReplicationBatch(tmp_path), TablesReader(tmp_path))
    pages: dict[int, set[str]] = {}
    for number, batch in enumerate(batches(logs(world), Random(world))):
        history.apply(batch)
        if number % 8 == 0:
            pages[micros_now()] = shown(history.reader.snapshot, micros_now())
    assert len(pages) > 3
    for moment, expected in pages.items():
        (from_there,) = replayed(tmp_path, range(moment, moment + 1), NAMES, SETTINGS)
        assert without_ages(from_there.splitlines()) == without_ages(expected)
        *_, from_before = replayed(tmp_path, range(min(pages), moment + 1, moment - min(pages) or 1), NAMES, SETTINGS)
        assert without_ages(from_before.splitlines()) == without_ages(expected)


def without_ages(lines: Iterable[str]) -> set[str]:
    return {line for line in lines if "age_seconds{" not in line}


OF_JOB: Final = tuple(f'condition="{condition}"' for condition in (*RULES, *SAMPLED_RULES))


def raised(page: str) -> set[str]:
    """Give the series of the conditions that the job writes."""
    return {line for line in page.splitlines() if line.startswith(CONDITION) and any(each in line for each in OF_JOB)}


def test_the_conditions_of_the_past_are_those_that_had_begun_and_not_ended_then(busy_cluster: Any) -> None:
    now, names = micros_now(), frozenset({CONDITION})
    (page,) = replayed(busy_cluster.directory, range(now, now + 1), names, SETTINGS)
    snapshot = TablesReader(busy_cluster.directory).refresh()
    blocks = Exposition(SETTINGS.stale_after).render(
        snapshot, ExporterHealth("", 0, 0.0, 0), now, ScrapeRequest(None, names)
    )
    assert raised(page) == raised(plain(blocks).decode()) != set()
    spells = select(open_ours(busy_cluster.directory, CONDITIONS), CONDITIONS)
    (begun,) = set(spells["began_version"].to_pylist())
    assert as_of(spells, begun - 1).num_rows == 0
    ended = spells.set_column(
        spells.column_names.index("ended_version"), "ended_version", pa.array([begun + 2] * spells.num_rows, pa.int64())
    )
    ended = ended.set_column(ended.column_names.index("ended_at"), "ended_at", spells["began_at"])
    for version, is_over in ((begun, False), (begun + 1, False), (begun + 2, True)):
        assert [each is not None for each in as_of(ended, version)["ended_at"].to_pylist()] == [is_over] * len(ended)


def test_what_samples_showed_then_lasts_then_though_it_is_over(busy_cluster: Any) -> None:
    """A disk filled up for ten minutes until the newest sample; nothing else of samples was wrong then."""
    spells = select(open_ours(busy_cluster.directory, SAMPLED_CONDITIONS), SAMPLED_CONDITIONS)
    (end,) = (row["ended_at"] for row in plain_times(spells).to_pylist() if row["ended_at"] is not None)
    before, at_the_end = (as_of_time(spells, moment) for moment in (end - 1, end))
    assert before["condition"].to_pylist() == ["disk_fills_up"]
    assert before["ended_at"].null_count == 1
    assert {*at_the_end["condition"].to_pylist()} == {
        "disk_nearly_full",
        "log_directory_offline",
        "hanging_transaction",
    }


def test_before_the_first_commit_nothing_is_shown(busy_cluster: Any, rows: Any) -> None:
    times = range(rows.start - 3_600 * SECOND, rows.start - 3_599 * SECOND, SECOND)
    assert list(replayed(busy_cluster.directory, times, NAMES, SETTINGS)) == [""]


def test_tables_without_rows_have_no_begin(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no rows yet: nothing is recorded"):
        begins_at(tmp_path)


def test_a_time_whose_history_has_expired_is_refused(busy_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.backtest.replay.oldest_known", lambda _: 99)
    now = micros_now()
    with pytest.raises(ConfigurationError, match="before the oldest state that the rows still give"):
        next(replayed(busy_cluster.directory, range(now, now + 1), NAMES, SETTINGS))
