"""Positions of groups: the rule in Arrow against the rule in Python, in any cut of a log into batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.group_positions import (
    CLOCKS_DIFFER,
    MOVING,
    REMEMBERED,
    RESTARTING,
    GroupPosition,
    GroupReadings,
    position_after,
)
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import plain_type
from streaming.delta.samples.newest import Newest
from tests.delta.test_sampled_group_spells import listed, offsets
from tests.delta.test_sampled_spells import Stored
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
        "members": st.none() | st.integers(0, 2),
        "group_state": st.none() | st.sampled_from(["Stable", "Empty", "PreparingRebalance"]),
        "committed_offset": OFFSET,
        "start_offset": st.none() | st.integers(0, 4),
        "lag": st.none() | st.integers(0, 9),
        "log_start_offset": OFFSET,
        "high_watermark": OFFSET,
        "last_stable_offset": OFFSET,
        "readable_at": st.none() | st.integers(CLOCKS_DIFFER - 2, CLOCKS_DIFFER + 40),
        "is_transactional": st.none() | st.booleans(),
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


@pytest.mark.parametrize("gap", [MOVING, MOVING + 1])
def test_a_position_is_remembered_for_a_while_without_samples(gap: int) -> None:
    ends = {"committed_offset": 3, "log_start_offset": 0, "high_watermark": 9, "last_stable_offset": 9}
    others = dict.fromkeys(("member", "members", "group_state", "start_offset", "lag", "readable_at"))
    first = ends | others | {"group": "g", "partition": 0, "positions_at": 0, "source": "samples:a"}
    samples = [first | {"collected_at": 1}, first | {"collected_at": 1 + gap, "log_start_offset": 5}]
    (position,) = expected(samples).values()
    assert taken([samples]) == taken([[each] for each in samples]) == expected(samples)
    assert (position.lost_at, position.standing_since) == ((1 + gap, 1) if gap == MOVING else (None, 1 + gap))


@pytest.mark.parametrize("last", [RESTARTING, RESTARTING + 1])
def test_a_partition_is_left_once_all_members_were_away_for_long(last: int) -> None:
    others = dict.fromkeys(("committed_offset", "log_start_offset", "high_watermark", "last_stable_offset", "lag"))
    first = others | {"group": "g", "partition": 0, "positions_at": 0, "source": "samples:a", "start_offset": 3}
    away = first | {"member": None, "members": 0, "group_state": "Empty"}
    samples = [first | {"collected_at": 1, "member": "app", "members": 1, "group_state": "Stable"}]
    samples += [away | {"collected_at": 1 + at} for at in (last // 2, last)]
    (position,) = expected(samples).values()
    assert taken([samples]) == taken([[each] for each in samples]) == expected(samples)
    assert position.left_at == (None if last == RESTARTING else 1 + last)


def taken(batches: list[list[Row]], *, restarts: bool = True) -> dict[tuple[str, int], GroupPosition]:
    names = {"cluster_id": "c", "cluster": "prod", "topic_id": "t", "topic": "orders"}
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    for batch in batches:
        columns = {name: PLAIN.field(name).type for name in (*names, *(batch[0] if batch else ()))}
        newest.take(pa.Table.from_pylist([names | sample for sample in batch], schema=pa.schema(columns.items())))
        newest = Newest(GROUP_OFFSETS, newest.rows) if restarts else newest
    return {
        (row["group"], row["partition"]): GroupPosition(*(row[name] for name in GroupPosition._fields))
        for row in newest.rows.to_pylist()
    }


@settings(max_examples=examples(60))
@given(SAMPLES, st.sets(st.integers(1, 24)))
def test_the_columns_are_the_rule_in_any_cut_of_the_samples(samples: list[Row], cuts: set[int]) -> None:
    in_order = sorted(samples, key=lambda sample: sample["collected_at"])
    whole = (0, *sorted(cut for cut in cuts if cut < len(samples)), len(samples))
    assert taken([in_order[begin:end] for begin, end in pairwise(whole)]) == expected(in_order)


@settings(max_examples=examples(20))
@given(SAMPLES, st.lists(st.sampled_from([0, 1, MOVING, REMEMBERED - MOVING, REMEMBERED]), min_size=25, max_size=25))
def test_silences_are_the_same_in_any_cut_while_the_job_runs(samples: list[Row], silences: list[int]) -> None:
    at, in_order = 0, list[Row]()
    for sample, silence in zip(samples, silences, strict=False):
        at += silence
        in_order.append(sample | {"collected_at": at + 1})
    found = taken([[each] for each in in_order], restarts=False)
    assert found == {key: position for key, position in expected(in_order).items() if key in found}


def answered(at: int, coordinator: int, *groups: str, **more: Any) -> pa.Table:
    """An answer of a coordinator: these groups stand still; of none a row without a key."""
    common = {"cluster_id": "c", "cluster": "prod", "source": "samples:a", "coordinator": coordinator}
    sample = {"topic_id": "t", "topic": "orders", "partition": 0, "committed_offset": 5, "log_start_offset": 0,
              "high_watermark": 9, "last_stable_offset": 9, "member": "app", **more}  # fmt: skip
    rows = [{**common, **sample, "group": group, "collected_at": at} for group in groups]
    return pa.Table.from_pylist(rows or [{**common, "collected_at": at}], schema=PLAIN)


def keeping(at: int, coordinator: int, *groups: str) -> pa.Table:
    """What stands for groups about which an answer of a coordinator says nothing."""
    common = {"cluster_id": "c", "cluster": "prod", "source": "samples:a", "coordinator": coordinator}
    return pa.Table.from_pylist([{**common, "group": group, "collected_at": at} for group in groups], schema=PLAIN)


def test_a_group_that_moves_to_another_coordinator_stands_still_since_it_did() -> None:
    """The old coordinator does not list it before the new one has it: it keeps it."""
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    answers = (answered(1, 1, "g", "h"), keeping(2, 1, "g"), answered(2, 1, "h"), answered(3, 2))
    for answer in answers:
        newest.take(answer)
    shown = {row["group"]: (row["collected_at"], row["kept_at"]) for row in newest.rows.to_pylist()}
    assert shown == {"g": (1, 2), "h": (2, None)}
    newest.take(answered(4, 2, "g", "i"))
    newest.take(answered(5, 2, "g", "i"))
    newest.take(answered(6, 1, "h"))
    rows = {row["group"]: (row["coordinator"], row["standing_since"]) for row in newest.rows.to_pylist()}
    assert rows == {"g": (2, 1), "h": (1, 1), "i": (2, 4)}
    assert newest.rows["kept_at"].null_count == len(rows)


@given(st.lists(st.tuples(st.sampled_from("gh"), st.booleans()), max_size=8), st.sets(st.integers(1, 30)))
def test_what_is_kept_stays_in_any_cut_of_the_answers(steps: list[tuple[str, bool]], cuts: set[int]) -> None:
    """Each answer has one of two groups, and keeps the other one or says that it is gone."""
    pieces, expected, at = [answered(1, 1, "g", "h")], {"g": 1, "h": 1}, 1
    for group, is_kept in steps:
        at, other = at + 1, "h" if group == "g" else "g"
        pieces += [keeping(at, 1, other)] if is_kept and other in expected else []
        pieces.append(answered(at, 1, group))
        expected = {name: moment for name, moment in expected.items() if is_kept or name == group} | {group: at}
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    whole = (0, *sorted(cut for cut in cuts if cut < len(pieces)), len(pieces))
    for begin, end in pairwise(whole):
        newest.take(pa.concat_tables(pieces[begin:end]))
        newest = Newest(GROUP_OFFSETS, newest.rows)
    assert {row["group"]: row["collected_at"] for row in newest.rows.to_pylist()} == expected


def test_a_topic_that_is_created_again_while_its_coordinator_is_down_has_one_row_per_partition() -> None:
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    for answer in (answered(1, 1, "g", "h"), answered(2, 2, "g", topic_id="again", committed_offset=0)):
        newest.take(answer)
    (row,) = newest.rows.to_pylist()
    assert (row["group"], row["topic_id"], row["lag"]) == ("g", "again", 9)


def test_a_group_that_is_gone_for_a_minute_starts_over() -> None:
    newest = Newest(GROUP_OFFSETS, PLAIN.empty_table())
    late = (GROUP_OFFSETS.forgotten_after + 1) * 1_000_000
    for answer in (answered(1, 1, "g"), answered(2, 1), answered(late, 1), answered(late + 1, 1, "g")):
        newest.take(answer)
    (row,) = newest.rows.to_pylist()
    assert row["standing_since"] == late + 1


# Spells that follow from positions, in any cut.


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    """Two coordinators with two partitions, some of which they leave out, or have both, one after the other."""
    at, log = 0.0, list[Row]()
    for _ in range(draw(st.integers(1, 8))):
        at += draw(st.sampled_from([5, 10, 10, 100, 280, 305, 900, 900, 4_000, 90_000]))
        coordinator = draw(st.integers(1, 2))
        for partition in draw(st.sampled_from([(), (0,), (1,), (0, 1), (0, 1)])):
            committed, start, end = draw(
                st.sampled_from([(50, 0, 100), (50, 0, 100), (50, 60, 100), (50, 0, 40), (99, 0, 99)])
            )
            member = draw(st.sampled_from(["app", "app", None]))
            log.append(
                offsets(at, committed, end, start=start, partition=partition, coordinator=coordinator, member=member)
            )
        log.append(listed(at, coordinator))
        if draw(st.integers(0, 5)) == 0:
            log += log[-draw(st.integers(1, 8)) :]
    return log


@settings(max_examples=examples(20), deadline=None)
@given(log=logs(), cuts=st.sets(st.integers(0, 40)), killed=st.sets(st.integers(0, 40)))
def test_any_cut_gives_the_same_spells_of_groups(log: list[Row], cuts: set[int], killed: set[int]) -> None:
    """Where the job is killed, the batch comes again; a position that was out of an answer for a start begins again."""
    singly = Stored(GROUP_OFFSETS)
    for sample in log:
        singly.apply([sample])
    held = Stored(GROUP_OFFSETS)
    for begin, end in pairwise(sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})):
        held.apply(log[begin:end])
        if end in killed:
            held.apply(log[begin:end])
    assert held.found == singly.found
    held.apply(log)
    assert held.found == singly.found, "samples that come again change nothing"
