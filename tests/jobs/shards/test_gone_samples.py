"""What the next answer of who reported it leaves out is gone: directories, voters, transactions, groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId, Micros, TopicId
from streaming.contracts.observations import Observation, SourceKind
from streaming.contracts.sample_blocks import TransactionsReported
from streaming.contracts.samples import LogDirectoryObserved, QuorumMemberObserved, TransactionObserved
from streaming.contracts.settings import BrokerSettingsObserved
from streaming.jobs.shards.samples import SampleBatch
from streaming.sources.samples.groups.blocks import CoordinatorAnswer, group_blocks, group_offset_blocks
from streaming.sources.samples.groups.described import DescribedGroup
from tests.examples import examples
from tests.jobs.shards.test_batch import published, rows
from tests.plugins.batches import store_progress


def envelope(second: int) -> dict[str, Any]:
    return {
        "cluster_id": "c", "cluster": "prod", "source": "samples:a", "source_kind": SourceKind.NONE,
        **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(second * 1_000_000)),
    }  # fmt: skip


def directories(broker: int, second: int, *paths: str) -> list[Observation]:
    return [
        LogDirectoryObserved(**envelope(second), broker=BrokerId(broker), log_dir=path, is_online=True)
        for path in paths
    ]


def quorum(second: int, *nodes: int) -> list[Observation]:
    return [
        QuorumMemberObserved(**envelope(second), node=node, is_voter=True, controller=101, controller_epoch=1)
        for node in nodes
    ]


def test_a_directory_that_a_broker_has_no_more_is_gone_and_what_a_silent_broker_has_stays(tmp_path: Path) -> None:
    seen = [*directories(1, 10, "/a", "/b"), *directories(2, 10, "/a"), *directories(1, 15, "/a")]
    SampleBatch(tmp_path).apply(published(seen))
    assert {(row["broker"], row["log_dir"]) for row in rows(tmp_path, "log_directories")} == {(1, "/a"), (2, "/a")}


def test_a_member_that_left_the_quorum_is_gone(tmp_path: Path) -> None:
    SampleBatch(tmp_path).apply(published([*quorum(10, 101, 102, 103), *quorum(12, 101, 103)]))
    assert {row["node"] for row in rows(tmp_path, "quorum_members")} == {101, 103}


def minutely(broker: int, second: int) -> list[Observation]:
    return [BrokerSettingsObserved(**envelope(second), broker=BrokerId(broker), replica_lag_time_max_ms=30_000)]


def test_settings_that_are_read_once_a_minute_stay_while_the_next_round_arrives(tmp_path: Path) -> None:
    """A round a minute by default: broker 2 has not answered yet when broker 1 has, a little more than a minute on."""
    batch = SampleBatch(tmp_path)
    batch.apply(published([*minutely(1, 10), *minutely(2, 10)]))
    batch.apply(published(minutely(1, 71), start=10))
    assert {row["broker"] for row in rows(tmp_path, "broker_settings")} == {1, 2}
    batch.apply(published(minutely(1, 191), start=20))
    assert {row["broker"] for row in rows(tmp_path, "broker_settings")} == {1}


def transactions(broker: int, second: int, *producers: int, hanging: tuple[int, ...] = ()) -> list[Observation]:
    """What a broker reports at a moment: the producers with an open transaction, and those with one that hangs."""
    return [
        *(
            TransactionObserved(
                **envelope(second), producer_id=producer, producer_epoch=0, transaction_state="Ongoing",
                is_hanging=producer in hanging, coordinator=None if producer in hanging else BrokerId(broker),
                reporter=BrokerId(broker),
            )
            for producer in (*producers, *hanging)
        ),
        TransactionsReported(**envelope(second), broker=BrokerId(broker)),
    ]  # fmt: skip


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_what_is_over_is_gone_and_what_a_silent_broker_had_stays(tmp_path: Path, is_one_batch: bool) -> None:  # noqa: FBT001 - a parameter of the test
    batch = SampleBatch(tmp_path)
    answers = [
        transactions(1, 10, 7, 8, hanging=(9,)),
        transactions(2, 11, 5),
        transactions(1, 40, 8),
        transactions(3, 41),
    ]
    if is_one_batch:
        batch.apply(published([each for answer in answers for each in answer]))
    else:
        everything: list[Observation] = []
        for answer in answers:
            everything += answer
            batch.apply(published(everything))

    assert {row["producer_id"] for row in rows(tmp_path, "transactions")} == {5, 8}


def test_when_the_last_one_is_over_the_table_is_empty_also_after_a_restart(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(published(transactions(1, 10, 7, hanging=(9,))))
    store_progress(tmp_path, batch)
    assert len(rows(tmp_path, "transactions")) == 2
    SampleBatch(tmp_path).apply(published([*transactions(1, 10, 7, hanging=(9,)), *transactions(1, 40)]))
    assert rows(tmp_path, "transactions") == []


def test_what_moved_to_another_coordinator_stays(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(published([*transactions(1, 10, 7), *transactions(2, 40, 7), *transactions(1, 41)]))
    assert [(row["producer_id"], row["coordinator"]) for row in rows(tmp_path, "transactions")] == [(7, 2)]


def test_of_a_simulation_nobody_says_that_a_transaction_is_over(tmp_path: Path) -> None:
    single, _ = transactions(1, 10, 7)
    simulated: Any = replace(single, reporter=None)  # type: ignore[call-arg]
    SampleBatch(tmp_path).apply(published([simulated, *transactions(1, 20)]))
    assert len(rows(tmp_path, "transactions")) == 1


def test_what_a_broker_had_that_does_not_come_back_is_forgotten_also_where_nobody_has_any(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(published([*transactions(1, 10, 7), *transactions(2, 70)]))
    assert [row["producer_id"] for row in rows(tmp_path, "transactions")] == [7], "a minute"
    batch.apply(published([*transactions(1, 10, 7), *transactions(2, 70), *transactions(2, 71)]))
    assert rows(tmp_path, "transactions") == []


Offsets = dict[str, dict[int, int]]
IDS = {"orders": TopicId("t")}


def answered(broker: int, moment: int, groups: dict[str, dict[int, int]], **fields: Any) -> list[Observation]:
    """What a coordinator says at a moment: by group its committed offsets by partition."""
    described = {name: DescribedGroup("classic", "Empty", 0) for name in groups}
    committed = {name: {"orders": {**offsets}} for name, offsets in groups.items()}
    answer = CoordinatorAnswer(described, committed, **fields)
    return [
        *group_blocks(BrokerId(broker), described, (), envelope(moment)),
        *group_offset_blocks(BrokerId(broker), answer, IDS, envelope(moment)),
    ]


def tables(directory: Path) -> tuple[Any, Any]:
    return (
        {row["group"]: row["coordinator"] for row in rows(directory, "groups")},
        {(row["group"], row["partition"]): row["coordinator"] for row in rows(directory, "group_offsets")},
    )


def expected(answers: list[tuple[int, dict[str, dict[int, int]]]]) -> tuple[Any, Any]:
    """The newest row of each key, if it is in the newest answer of who reported it."""
    last = {broker: moment for moment, (broker, _) in enumerate(answers)}
    groups: dict[Any, tuple[int, int]] = {}
    offsets: dict[Any, tuple[int, int]] = {}
    for moment, (broker, named) in enumerate(answers):
        groups |= dict.fromkeys(named, (moment, broker))
        offsets |= {(name, number): (moment, broker) for name, parts in named.items() for number in parts}

    def there(newest: dict[Any, tuple[int, int]]) -> dict[Any, int]:
        return {key: broker for key, (moment, broker) in newest.items() if last[broker] == moment}

    return there(groups), there(offsets)


ANSWERS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.dictionaries(
            st.sampled_from("xyz"), st.dictionaries(st.integers(0, 2), st.integers(0, 9), max_size=2), max_size=3
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(10))
@given(answers=ANSWERS, cuts=st.sets(st.integers(1, 7)), restarts=st.booleans())
def test_groups_and_partitions_are_those_of_the_newest_answers_however_the_log_is_cut(
    tmp_path_factory: pytest.TempPathFactory, *, answers: list[Any], cuts: set[int], restarts: bool
) -> None:
    directory = tmp_path_factory.mktemp("groups")
    observed = [answered(broker, moment, named) for moment, (broker, named) in enumerate(answers)]
    batch, start = SampleBatch(directory), 0
    for begin, end in pairwise(sorted({0, len(answers), *(cut for cut in cuts if cut < len(answers))})):
        batch = SampleBatch(directory) if restarts else batch
        piece = [one for several in observed[begin:end] for one in several]
        batch.apply(published(piece, start=start))
        store_progress(directory, batch)
        start += len(piece)
    assert tables(directory) == expected(answers)


def test_the_last_group_of_a_cluster_leaves_with_the_next_answer(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(published(answered(1, 5, {"last": {0: 3}})))
    assert tables(tmp_path) == ({"last": 1}, {("last", 0): 1})
    batch.apply(published(answered(1, 6, {}), start=2))
    assert tables(tmp_path) == ({}, {})


def test_the_lag_of_a_share_group_is_the_reported_one_of_others_that_of_offsets(tmp_path: Path) -> None:
    positions = {
        "log_start_offset": {"orders": {0: 4, 1: 0, 2: 0}},
        "last_stable_offset": {"orders": {0: 9, 1: 19, 2: 29}},
        "high_watermark": {"orders": {0: 10, 1: 20, 2: 30}},
    }
    lags = {"shared": {"orders": {1: 7}}}
    observed = answered(1, 5, {"plain": {0: 3, 2: 31, 5: 1}, "shared": {}}, positions=positions, lags=lags)
    SampleBatch(tmp_path).apply(published(observed))
    shown = {
        (row["group"], row["partition"]): (row["lag"], row["stable_lag"], row["records_lost"])
        for row in rows(tmp_path, "group_offsets")
    }
    assert shown == {
        ("plain", 0): (6, 5, 1),
        ("plain", 2): (0, 0, 0),
        ("plain", 5): (None, None, None),
        ("shared", 1): (7, 7, None),
    }


def test_a_node_is_in_the_quorum_as_often_as_it_has_directories(tmp_path: Path) -> None:
    twice = [
        replace(each, directory_id=directory, is_voter=directory == "gone")
        for each in quorum(10, 102)
        for directory in ("gone", "new")
    ]
    SampleBatch(tmp_path).apply(published([*quorum(10, 101), *twice]))
    found = {(row["node"], row["directory_id"], row["is_voter"]) for row in rows(tmp_path, "quorum_members")}
    assert found == {(101, None, True), (102, "gone", True), (102, "new", False)}
    SampleBatch(tmp_path).apply(
        published([*quorum(12, 101), replace(twice[1], collected_at=quorum(12, 1)[0].collected_at)])
    )
    found = {(row["node"], row["directory_id"], row["is_voter"]) for row in rows(tmp_path, "quorum_members")}
    assert found == {(101, None, True), (102, "new", False)}
