"""The job writes what samples show as spells: killed between the commits of tables, started again, with history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exporters.read_model.conditions import ConditionInputs, raised
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.samples import LogDirectoryObserved
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.writer import Writer
from streaming.errors import IsrwatchError, TableUnreadable
from streaming.jobs.shards.samples import SampleBatch
from tests.exporters.conftest import restless
from tests.jobs.shards.test_sample_tables import ASKED, envelope, records
from tests.plugins.batches import store_progress
from tests.plugins.pipeline import rows_of

SECOND = 1_000_000
START = 1_790_000_000 * SECOND


def directory(at: int, free: int = 50, broker: int = 1, *, is_online: bool = True) -> LogDirectoryObserved:
    """Spell one sample, some seconds after the start."""
    told = {**envelope(ASKED, START + at * SECOND), "broker": BrokerId(broker)}
    return LogDirectoryObserved(**told, log_dir="/d", is_online=is_online, total_bytes=100, usable_bytes=free)


# A disk that fills up, is emptied and fills up; another one, offline for a moment within one batch; both go on.
STORY = (
    directory(0), directory(0, broker=2), directory(30, 4), directory(30, broker=2, is_online=False),
    directory(60, 3), directory(60, broker=2), directory(90, 60), directory(90, broker=2),
    directory(120, 12), directory(120, broker=2), directory(150, 12), directory(150, broker=2),
)  # fmt: skip
LOG = records(*STORY)
HALF = 3
EXPECTED = [
    ("disk_fills_up", "1:/d", 30, 90), ("disk_nearly_full", "1:/d", 120, None), ("disk_nearly_full", "1:/d", 30, 90),
    ("log_directory_offline", "2:/d", 30, 60),
]  # fmt: skip


def spells(place: Path) -> list[tuple[Any, ...]]:
    rows = rows_of(place, SAMPLED_CONDITIONS.name)
    found = [(row["condition"], row["subject"], _after(row["began_at"]), _after(row["ended_at"])) for row in rows]
    return sorted(found, key=str)


def _after(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp()) - START // SECOND


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), tuple(range(1, len(STORY)))], ids=str)
def test_the_spells_of_a_log_are_the_same_however_it_is_cut(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    batch, begin = SampleBatch(tmp_path), 0
    for end in (*cuts, len(STORY)):
        batch.apply(LOG.slice(begin, end - begin))
        begin = end
    assert spells(tmp_path) == EXPECTED


@pytest.mark.parametrize("is_stored", [False, True], ids=["before any report", "after a report"])
@pytest.mark.parametrize("commits", range(2))
def test_a_kill_between_the_commits_of_two_tables_leaves_the_same_spells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, *, is_stored: bool
) -> None:
    """The spells are committed, the rows that they follow from are not; or neither are."""
    batch, add, left = SampleBatch(tmp_path), Writer.add_files, iter(range(commits))
    batch.apply(LOG.slice(0, HALF))
    if is_stored:
        store_progress(tmp_path, batch)

    def killed(self: Writer, *given: Any) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return add(self, *given)

    monkeypatch.setattr(Writer, "add_files", killed)
    with pytest.raises(KeyboardInterrupt):
        batch.apply(LOG.slice(HALF))
    monkeypatch.setattr(Writer, "add_files", add)
    assert (len(spells(tmp_path)) == len(EXPECTED)) == (commits == 1)
    assert {round(row["collected_at"].timestamp()) for row in rows_of(tmp_path, "log_directories")} < {
        START // SECOND + at for at in range(60)
    }
    SampleBatch(tmp_path).apply(LOG)
    assert spells(tmp_path) == EXPECTED


def test_rows_wait_for_the_spells_that_follow_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, add = SampleBatch(tmp_path), Writer.add_files
    batch.apply(LOG.slice(0, HALF))
    before = rows_of(tmp_path, "log_directories")

    def refused(self: Writer, *given: Any) -> int:
        if self.path.name == SAMPLED_CONDITIONS.name:
            raise TableUnreadable("the disk refuses")
        return add(self, *given)

    monkeypatch.setattr(Writer, "add_files", refused)
    with pytest.raises(IsrwatchError, match="the disk refuses"):
        batch.apply(LOG.slice(HALF))
    assert rows_of(tmp_path, "log_directories") == before
    monkeypatch.setattr(Writer, "add_files", add)
    batch.apply(LOG)
    assert spells(tmp_path) == EXPECTED


def test_nothing_is_written_while_nothing_begins_or_ends(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(LOG)
    version = Writer.opened(tmp_path, SAMPLED_CONDITIONS).version
    batch.apply(pa.concat_tables([LOG, records(*(directory(at, 12) for at in range(0, 600, 30)))]).slice(len(LOG)))
    assert Writer.opened(tmp_path, SAMPLED_CONDITIONS).version == version


def test_history_keeps_the_days_that_are_asked_for(tmp_path: Path) -> None:
    days = [[directory(day * 86_400, 4), directory(day * 86_400 + 30)] for day in range(6)]
    log = records(*(each for day in days for each in day))
    for begin in range(0, len(log), 2):
        batch = SampleBatch(tmp_path, RetentionPolicy(days=3))
        batch.apply(log.slice(begin, 2))
        store_progress(tmp_path, batch)
    begins = {begin for condition, _, begin, _ in spells(tmp_path) if condition == "disk_fills_up"}
    assert begins == {day * 86_400 for day in (2, 3, 4, 5)}


def test_two_exporters_show_it_since_the_same_sample_whatever_was_restarted(tmp_path: Path) -> None:
    """Also while its broker is silent for so long that the newest rows forget it."""
    first = restless(tmp_path)
    now = Micros(START + 900 * SECOND)

    def shown(*readers: Any) -> set[tuple[str, str, int]]:
        found = (
            each
            for reader in readers
            for one in reader.refresh().clusters.values()
            for each in raised({one.name: one}, ConditionInputs(now=now, stale_after=60.0))
        )
        return {(each.condition, each.subject, each.since) for each in found if each.subject.startswith("1:")}

    log = records(*STORY, *(directory(at, broker=2) for at in range(180, 900, 30)), directory(900, 60))
    for begin, end in ((0, 10), (10, 20), (20, len(log) - 1)):
        batch = SampleBatch(tmp_path)
        batch.apply(log.slice(begin, end - begin))
        store_progress(tmp_path, batch)
        assert shown(first, restless(tmp_path)) == {("disk_nearly_full", "1:/d", START + 120 * SECOND)}
    assert {row["broker"] for row in rows_of(tmp_path, "log_directories")} == {2}, "its row is forgotten"
    batch.apply(log.slice(len(log) - 1))
    assert shown(first, restless(tmp_path)) == set()
