"""Positions of groups: the rule in Arrow against the rule in Python, in any cut of a log into batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.group_positions import GroupPosition, GroupReadings, position_after
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import plain_type
from streaming.delta.samples.newest import Newest
from tests.examples import examples

Row = dict[str, Any]
PLAIN = pa.schema([pa.field(item.name, plain_type(item.type)) for item in arrow_schema(GROUP_OFFSETS)])
OFFSET = st.none() | st.integers(0, 6) | st.integers(2**61, 2**61 + 3)
SAMPLES = st.lists(
    st.fixed_dictionaries({
        "group": st.sampled_from("gh"),
        "partition": st.integers(0, 1),
        "collected_at": st.integers(1, 40),
        "positions_at": st.none() | st.integers(0, 40),
        "source": st.sampled_from(["samples:a", "samples:a", "samples:b"]),
        "member": st.none() | st.just("app"),
        "committed_offset": OFFSET,
        "start_offset": st.none() | st.integers(0, 4),
        "lag": st.none() | st.integers(0, 9),
        "log_start_offset": OFFSET,
        "high_watermark": OFFSET,
        "last_stable_offset": OFFSET,
    }),
    max_size=25,
)  # fmt: skip


def readings(sample: Row) -> GroupReadings:
    same = {name: sample[name] for name in GroupReadings._fields if name in sample}
    return GroupReadings(at=sample["collected_at"], share_lag=sample["lag"], **same)


def expected(samples: list[Row]) -> dict[tuple[str, int], GroupPosition]:
    """One sample after the other; older and equally old ones are ignored."""
    newest: dict[tuple[str, int], tuple[GroupReadings, GroupPosition]] = {}
    for sample in samples:
        key, now = (sample["group"], sample["partition"]), readings(sample)
        if key not in newest or now.at > newest[key][0].at:
            newest[key] = now, position_after(newest.get(key), now)
    return {key: position for key, (_, position) in newest.items()}


def taken(batches: list[list[Row]]) -> dict[tuple[str, int], GroupPosition]:
    names = {"cluster_id": "c", "cluster": "prod", "topic_id": "t", "topic": "orders"}
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    for batch in batches:
        columns = {name: PLAIN.field(name).type for name in (*names, *(batch[0] if batch else ()))}
        newest.take(pa.Table.from_pylist([names | sample for sample in batch], schema=pa.schema(columns.items())))
        newest = Newest(GROUP_OFFSETS, newest.rows)
    return {
        (row["group"], row["partition"]): GroupPosition(*(row[name] for name in GroupPosition._fields))
        for row in newest.rows.to_pylist()
    }


@settings(max_examples=examples(120))
@given(SAMPLES, st.sets(st.integers(1, 24)))
def test_the_columns_are_the_rule_in_any_cut_of_the_samples(samples: list[Row], cuts: set[int]) -> None:
    in_order = sorted(samples, key=lambda sample: sample["collected_at"])
    whole = (0, *sorted(cut for cut in cuts if cut < len(samples)), len(samples))
    assert taken([in_order[begin:end] for begin, end in pairwise(whole)]) == expected(in_order)
