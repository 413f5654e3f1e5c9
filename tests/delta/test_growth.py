"""What a year would leave behind, in small: after two weeks every table has as many rows as after one.

``tests/benchmarks/year.py`` is the same with a year, sizes of a real cluster, and what it costs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from streaming.delta.log import maintenance
from streaming.delta.quarantine import KEPT_RECORDS
from tests.benchmarks.year import GROWS_FOR_EVER, Measured, Size, Year, parsed, table_of
from tests.plugins.derived import shard_of

WEEK = 7
SMALL = {
    "days": 2 * WEEK, "second": WEEK, "partitions": 120, "brokers": 6, "incidents": 6, "topics": 4, "groups": 140,
    "refused": 2 * KEPT_RECORDS,
}  # fmt: skip


def sizes_after_each_week(directory: Path, size: Size, restarts: int) -> list[dict[str, int]]:
    """Rows by table, and what the job remembers of topics."""
    year, sizes = Year(directory, size), []
    for number in range(size.days):
        year.day(number)
        if number % restarts == restarts - 1:
            year.open()
        if number % WEEK == WEEK - 1:
            state = shard_of(year.replication).held.state
            remembered = {"minima": len(state.configs), "topics": len(list(state.topic_keys()))}
            tables = [each for each in directory.iterdir() if DeltaTable.is_deltatable(str(each))]
            sizes.append(remembered | {each.name: DeltaTable(str(each)).count() for each in tables})
    return sizes


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "COMMITS_BETWEEN_ROUNDS", 1)
    monkeypatch.setattr(maintenance, "SECONDS_BETWEEN_SWEEPS", 0.0)
    monkeypatch.setattr("streaming.delta.incidents.closed.NEWEST_RETAINED", 20)
    monkeypatch.setattr("streaming.delta.quarantine.FILES_BEFORE_CONDENSING", 4)


def growth(sizes: list[dict[str, int]]) -> dict[str, float]:
    one, other = sizes
    return {name: other[name] / max(1, one[name]) for name in other}


@pytest.mark.parametrize("restarts", [5, pytest.param(1000, marks=pytest.mark.long)])
def test_with_days_of_history_nothing_grows(tmp_path: Path, restarts: int) -> None:
    sizes = sizes_after_each_week(tmp_path, Size(**SMALL, history_days=3), restarts)
    whole = sum(sizes[1][name] for name in ("partition_state", "broker_state", "cluster_state", "source_progress"))
    assert sizes[1]["past_states"] <= 4 * whole, "one of each day that is kept, and of the day that has begun"
    grown = growth(sizes)
    grown.pop("past_states")
    assert {name: ratio for name, ratio in grown.items() if ratio > 1.3} == {}
    assert sizes[1]["minima"] <= 3 * SMALL["topics"], "of topics that are remembered for two days"
    assert sizes[1]["quarantine"] <= KEPT_RECORDS + 4


@pytest.mark.long
def test_without_only_changes_events_and_states_of_the_past_grow(tmp_path: Path) -> None:
    sizes = sizes_after_each_week(tmp_path, Size(**SMALL, history_days=0), 1000)
    grown = {name: ratio for name, ratio in growth(sizes).items() if ratio > 1.3}
    assert set(grown) == set(GROWS_FOR_EVER)
    grown.pop("past_states")  # whole states, few of them: as many as a tenth of the changes has room for
    assert max(grown.values()) < 2.3


@pytest.mark.parametrize(("days", "second"), [(1, 1), (4, 2), (60, 30), (119, 59), (365, 60)])
def test_a_run_of_any_length_is_compared_with_a_day_of_its_own(days: int, second: int) -> None:
    size = parsed(["--days", str(days)])
    assert size.second == second
    measured = {day: Measured(0.1, 0.2, 300, {"events": day * 400_000}, day * 1_000) for day in (second, days)}
    lines = list(table_of(measured, size))
    assert lines[1].split() == ["day", str(second), "day", str(days), "ratio"]
    grown = [line for line in lines if "1,000 changes" in line]
    assert grown == ["0.40 MB for 1,000 changes, 20 kB for an incident"][: days > second]


def test_a_day_after_the_last_one_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(["--days", "4", "--second", "60"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("error: --second 60: name a day from 1 to --days 4")
