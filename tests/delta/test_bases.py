"""Bases of the past: with them, without them and with damaged ones the state at a moment is that of the changes."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from exporters.read_model.past import Past
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_CHANGES, PAST_STATES
from streaming.delta.changes import bases
from streaming.delta.changes.bases import PastStates, bases_of, read_base
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.storage import data_files, open_table, table_at
from streaming.delta.log.table_log import newest_version
from streaming.delta.state import as_of_version
from streaming.errors import TableUnreadable
from tests.delta.test_history import HOUR, ISRS, STEPS, Life, day, days_of
from tests.examples import examples
from tests.exporters.meaning import folded, of_moment


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """Leave room for a base of a history that is as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "SHARE", 1000)
        yield


def rows_of(directory: Path) -> pa.Table:
    return pa.concat_tables(part for _, part in ChangeReader(directory / PARTITION_CHANGES.name).poll())


def written(directory: Path) -> list[bases.Base]:
    table = open_table(directory / PAST_STATES.name)
    return [] if table is None else bases_of(table)


def moments(directory: Path, rows: pa.Table) -> list[int]:
    """Give moments around those at which something occurred, as far as they can be shown."""
    oldest, newest = Past(directory).range() or (0, -1)
    every = {at + by for at in rows["occurred_not_after"].cast(pa.int64()).to_pylist() for by in (-1, 0, 1)}
    return sorted(at for at in every if oldest <= at <= newest)


def shown(past: Past, at: int) -> dict[str, dict[str, Any]]:
    return of_moment(past.snapshot(at))


@settings(max_examples=examples(3), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    steps=st.lists(st.one_of(STEPS, st.tuples(st.just("derive"), st.just(()))), min_size=4, max_size=16),
    expiry=st.floats(0, 1),
    choice=st.lists(st.floats(0, 1), min_size=3, max_size=6),
)
def test_with_any_bases_and_after_any_expiry_the_state_at_a_moment_is_that_of_the_changes(
    steps: list[tuple[str, tuple[Any, ...]]], expiry: float, choice: list[float]
) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory))
        for name, arguments in steps:
            if name == "derive":
                life.commit()
            getattr(life, name)(*arguments)
        life.commit()
        life.derive()
        rows, days = rows_of(life.directory), days_of(life)
        asked = moments(life.directory, rows)
        expected = {at: folded(rows, at) for at in {asked[round(each * (len(asked) - 1))] for each in choice}}
        past = Past(life.directory)
        for at, state in expected.items():
            assert shown(past, at) == state

        life.expire(days[round(expiry * (len(days) - 1))])
        past = Past(life.directory)
        oldest, _ = past.range() or (0, 0)
        for at, state in expected.items():
            if at >= oldest:
                found = shown(past, at)
                for each in (*found.values(), *state.values()):
                    each.pop("departures")  # of expired history they are known by a base alone
                assert found == state


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Two changes a day for a week, and the state tables after each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "SHARE", 1000)
        life = Life(tmp_path_factory.mktemp("week"))
        for number in range(14):
            life.later(12 * HOUR)
            life.change(number % 2, ISRS[number % 4])
            life.commit()
            life.derive()
    return life


@pytest.fixture
def tables(week: Life, tmp_path: Path) -> Path:
    """A copy of its tables."""
    return shutil.copytree(week.directory, tmp_path / "tables")


def test_a_base_is_written_for_each_day_and_is_the_state_then(week: Life) -> None:
    found, rows = written(week.directory), rows_of(week.directory)
    assert len({day(base.newest) for base in found}) == len(found) == 7
    for base in found:
        upto = rows.filter(pc.less_equal(rows["version"], base.version))
        assert base.newest == pc.max(upto["occurred_not_after"].cast(pa.int64())).as_py()
    assert as_of_version(table_at(week.directory / PAST_STATES.name)) == found[-1].version


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def overwritten(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for place in range(4, len(content) // 2, 7):
        content[place] ^= 0xFF
    file.write_bytes(bytes(content))


def missing(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [torn, overwritten, missing])
def test_a_damaged_base_costs_no_truth(tables: Path, damage: Callable[[Path], None]) -> None:
    rows = rows_of(tables)
    asked = moments(tables, rows)[::9]
    expected = {at: folded(rows, at) for at in asked}
    newest_first = sorted(written(tables), reverse=True)
    for base in newest_first[::2]:
        for file in base.files:
            damage(tables / PAST_STATES.name / file.path)
    with pytest.raises(TableUnreadable):
        read_base(tables / PAST_STATES.name, newest_first[0])
    past = Past(tables)
    assert {at: shown(past, at) for at in asked} == expected


def spoil_log(tables: Path) -> None:
    for entry in (tables / PAST_STATES.name / "_delta_log").glob("*.json"):
        entry.write_text("{")


def test_without_any_base_that_can_be_read_the_changes_alone_give_the_state(tables: Path) -> None:
    rows = rows_of(tables)
    asked = moments(tables, rows)[::9]
    spoil_log(tables)
    past = Past(tables)
    assert {at: shown(past, at) for at in asked} == {at: folded(rows, at) for at in asked}


def test_the_job_begins_a_table_of_bases_again_that_cannot_be_read(tables: Path) -> None:
    spoil_log(tables)
    derive_with(tables, PastStates(tables))
    (base,) = written(tables)
    assert base.version == newest_version(tables / PARTITION_CHANGES.name)
    assert (tables / "past_states.ahead").is_dir()


def test_bases_expire_with_the_days_of_the_history(week: Life, tables: Path) -> None:
    policy = RetentionPolicy(days=3, clock=lambda: week.story.now)
    before = written(tables)
    derive_with(tables, PastStates(tables, policy))
    kept = [base for base in before if day(base.newest) >= day(week.story.now) - dt.timedelta(days=3)]
    assert 0 < len(kept) < len(before)
    assert written(tables) == kept


def derive_with(tables: Path, past_states: PastStates) -> None:
    """Give a writer of bases what the job gives it after a round."""
    clusters, brokers, partitions = (
        table_at(tables / name) for name in ("cluster_state", "broker_state", "partition_state")
    )
    rows = (select(clusters, CLUSTER_STATE_TABLE), select(brokers, BROKER_STATE_TABLE))
    past_states.after_round(as_of_version(clusters), *rows, partitions.get_add_actions()["path"].to_pylist())


def test_bases_take_a_tenth_of_the_history_at_most(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closest ones go first, and the days that are left stay spread over the history."""
    sizes = [base.size for base in written(tables)]
    history = bases.bytes_of(open_table(tables / PARTITION_CHANGES.name))
    monkeypatch.setattr(bases, "SHARE", 3.5 * max(sizes) / history)
    derive_with(tables, PastStates(tables))
    left = written(tables)
    assert len(left) == 3
    assert sum(base.size for base in left) <= bases.SHARE * history
    assert left[-1].version - left[0].version >= 7


def test_a_base_without_room_is_left_out_and_its_files_are_no_part_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "SHARE", 0.0001)
    life = Life(tmp_path)
    life.commit()
    life.derive()
    assert written(tmp_path) == []
    assert newest_version(tmp_path / PAST_STATES.name) == 0
    assert len(data_files(tmp_path / PAST_STATES.name)) <= 1
    assert Past(tmp_path).snapshot(life.story.now).clusters
