"""Tables of the newest samples: the rule in Arrow against the rule in Python."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts import health
from streaming.contracts.identifiers import Micros
from streaming.contracts.sample_tables import LOG_DIRECTORIES, REPLICA_OFFSETS
from streaming.contracts.slopes import BYTES_WINDOW, LAG_WINDOW, Slope, seconds_left, slope_after
from streaming.delta.samples.newest import key_numbers, lag_distance, with_slopes
from tests.examples import examples
from tests.jobs.shards.test_batch import rows as rows_of
from tests.plugins.derived import StoredNewest

OFFSETS = st.none() | st.integers(0, 4) | st.integers(0, 2**62)
SAMPLES = st.lists(
    st.fixed_dictionaries({
        "cluster_id": st.sampled_from("ab"),
        "topic_id": st.sampled_from("tu"),
        "partition": st.just(0),
        "broker": st.just(1),
        # Across the end of a window, half a window apart, a moment less, and none so old that it is forgotten.
        "collected_at": st.integers(12, 33).map(lambda half: half // 2 * LAG_WINDOW // 12 - half % 2),
        "log_end_offset": OFFSETS,
        "leader_log_end_offset": OFFSETS,
    }),
    min_size=1,
    max_size=30,
)  # fmt: skip
Row = dict[str, Any]


def columns(samples: list[Row]) -> pa.Table:
    names = ["log_end_offset", "leader_log_end_offset", "collected_at"]
    strings = ["cluster_id", "cluster", "topic_id", "topic", "source"]
    types = [(strings, pa.string()), (["partition", "broker"], pa.int32()), (names, pa.int64())]
    schema = pa.schema([(name, kind) for group, kind in types for name in group])
    filled = [{"cluster": "prod", "topic": "orders", "source": "admin:a", **sample} for sample in samples]
    return pa.Table.from_pylist(filled, schema=schema)


def expected(batches: list[list[Row]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """One sample after the other, as they come: older and equally old ones are ignored."""
    found: dict[tuple[Any, ...], Row] = {}
    for batch in batches:
        for sample in batch:
            key = tuple(sample[name] for name in REPLICA_OFFSETS.key)
            before = found.get(key)
            if before is not None and sample["collected_at"] <= before["collected_at"]:
                continue
            end, leader_end = sample["log_end_offset"], sample["leader_log_end_offset"]
            since = health.behind_since(
                before and before["since"],
                before and before["leader_log_end_offset"],
                sample["collected_at"],
                end,
                leader_end,
            )
            lag = health.lag(end, leader_end)
            slope = slope_after(before and before["slope"], sample["collected_at"], lag, Micros(LAG_WINDOW))
            found[key] = {**sample, "since": since, "lag": lag, "slope": slope}
    return {
        key: (
            row["collected_at"],
            row["log_end_offset"],
            row["lag"],
            row["since"],
            *slope_columns(row["slope"], row["lag"]),
        )
        for key, row in found.items()
    }


def slope_columns(slope: Slope | None, lag: int | None) -> tuple[Any, ...]:
    """What the columns of a slope hold: none of them anything where there is no slope."""
    return (None,) * 4 if slope is None else (*slope, seconds_left(lag, slope.per_second))


def micros(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def table(directory: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {
        tuple(row[name] for name in REPLICA_OFFSETS.key): (
            micros(row["collected_at"]), row["log_end_offset"], row["lag"], micros(row["behind_since"]),
            micros(row["lag_measured_since"]), row["lag_measured_from"], row["lag_per_second"],
            row["seconds_until_caught_up"],
        )
        for row in rows_of(directory, REPLICA_OFFSETS.name)
    }  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True])
@settings(max_examples=examples(20))
@given(batches=st.lists(SAMPLES, max_size=4))
def test_the_newest_of_each_key_stays_and_tells_since_when_it_is_behind(
    tmp_path_factory: pytest.TempPathFactory, *, restarts: bool, batches: list[list[Row]]
) -> None:
    directory = tmp_path_factory.mktemp("newest")
    newest = StoredNewest(directory, REPLICA_OFFSETS)
    for batch in batches:
        newest = StoredNewest(directory, REPLICA_OFFSETS) if restarts else newest
        newest.put(columns(batch))
        newest.put(columns(batch))
    assert table(directory) == expected(batches)


def test_a_key_with_a_null_is_none_of_the_others() -> None:
    keys = [(one, other) for one in (*"abcd", None) for other in (*"xyz", None)]
    rows = pa.table({"one": [one for one, _ in keys], "other": [other for _, other in keys]})
    assert len(set(key_numbers(rows, ["one", "other"]).to_pylist())) == len(keys)


BEHIND = {"log_end_offset": 1, "leader_log_end_offset": 4}
CAUGHT_UP = {"log_end_offset": 4, "leader_log_end_offset": 4}
# The clock of the collector was ahead for one sample.
JUMP = [{"collected_at": 10, **BEHIND}, {"collected_at": 50, **BEHIND}, {"collected_at": 20, **CAUGHT_UP},
        {"collected_at": 30, **BEHIND}, {"collected_at": 60, **BEHIND}]  # fmt: skip


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (3,), (1, 2), (1, 2, 3, 4)])
def test_a_clock_that_was_ahead_gives_the_same_rows_in_any_cut(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    of_replica = {"cluster_id": "a", "topic_id": "t", "partition": 0, "broker": 1}
    samples = [{**of_replica, **sample} for sample in JUMP]
    newest = StoredNewest(tmp_path, REPLICA_OFFSETS)
    for begin, end in pairwise((0, *cuts, len(samples))):
        newest.put(columns(samples[begin:end]))
    assert table(tmp_path) == {("a", "t", 0, 1): (60, 1, 3, 10, 10, 3, None, None)}


def test_what_its_source_left_out_is_forgotten_in_its_own_cluster_only(tmp_path: Path) -> None:
    old, new = 7, 8 + REPLICA_OFFSETS.forgotten_after * 1_000_000
    sample = {"topic_id": "t", "broker": 1, "log_end_offset": 5, "leader_log_end_offset": 5}
    newest = StoredNewest(tmp_path, REPLICA_OFFSETS)
    newest.put(columns([
        {**sample, "cluster_id": "a", "partition": 0, "collected_at": old},
        {**sample, "cluster_id": "b", "partition": 0, "collected_at": old},
    ]))  # fmt: skip
    newest.put(columns([{**sample, "cluster_id": "a", "partition": 1, "collected_at": new}]))
    assert {key[:3] for key in table(tmp_path)} == {("a", "t", 1), ("b", "t", 0)}
    assert len(newest) == 2


@given(st.lists(st.tuples(st.text(max_size=2), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=1))))
def test_equal_keys_have_an_equal_number_and_no_others(keys: list[tuple[Any, ...]]) -> None:
    names = ("a", "b", "c")
    types = (pa.string(), pa.int32(), pa.dictionary(pa.int32(), pa.string()))
    rows = pa.Table.from_pylist([dict(zip(names, key, strict=True)) for key in keys],
                                schema=pa.schema(list(zip(names, types, strict=True))))  # fmt: skip
    numbers = key_numbers(rows, names).to_pylist()
    assert len(set(numbers)) == len(set(keys)) == len(set(zip(numbers, keys, strict=True)))


def test_a_directory_is_full_when_its_free_bytes_are_gone_at_the_pace_of_the_last_window(tmp_path: Path) -> None:
    """A quarter of a window apart: it fills by 100 bytes a second, then is emptied, which half a window shows."""
    of_directory = {"cluster_id": "a", "cluster": "prod", "broker": 1, "log_dir": "/data", "is_online": True,
                    "source": "samples:a", "total_bytes": 1_000_000}  # fmt: skip
    step = BYTES_WINDOW // 4
    found = []
    for number, used in enumerate((100_000, 130_000, 160_000, 190_000, 220_000, 50_000, 50_000)):
        sample = {**of_directory, "usable_bytes": 1_000_000 - used, "collected_at": BYTES_WINDOW * 8 + number * step}
        StoredNewest(tmp_path, LOG_DIRECTORIES).put(pa.Table.from_pylist([sample]))
        (row,) = rows_of(tmp_path, LOG_DIRECTORIES.name)
        assert row["used_bytes"] == used
        found.append((row["bytes_per_second"], row["seconds_until_full"]))

    assert found == [
        (None, None), (None, None), (100.0, 8_400.0), (100.0, 8_100.0), (100.0, 7_800.0),
        (100.0, 9_500.0), (-283.3333333333333, None),
    ]  # fmt: skip


TYPES = {"key": pa.int64(), "collected_at": pa.int64(), "lag": pa.int64(), "lag_per_second": pa.float64(),
         "seconds_until_caught_up": pa.float64(), "lag_measured_since": pa.int64(),
         "lag_measured_from": pa.int64(), "known": pa.bool_()}  # fmt: skip


def test_a_row_that_was_written_before_there_were_slopes_is_the_first_to_compare_with() -> None:
    rows = [{"key": 1, "collected_at": at, "lag": lag} for at, lag in ((0, 900), (LAG_WINDOW // 2, 300))]
    table = pa.Table.from_pylist(rows, schema=pa.schema(TYPES.items()))
    found = with_slopes(table, pa.array([False, True]), pa.array([True, False]))
    assert found["lag_per_second"].to_pylist() == [None, -20.0]
    assert found["seconds_until_caught_up"].to_pylist() == [None, 15.0]


LARGE_OFFSETS = st.none() | st.integers(0, 2**62)


@given(st.lists(st.tuples(LARGE_OFFSETS, LARGE_OFFSETS), min_size=1, max_size=20))
def test_a_distance_of_columns_is_the_lag_of_each_row(rows: list[tuple[int | None, int | None]]) -> None:
    begins, ends = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    found = lag_distance(begins, ends).to_pylist()
    assert found == [health.lag(begin, end) for begin, end in rows]
