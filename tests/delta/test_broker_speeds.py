"""The table of brokers' speeds goes on after a restart, and gives what the pure rule gives of the same rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.changes.advice.slow_brokers import LEAST_HISTORY, BrokerSpeed, SpeedSample, after_round
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_tables import BROKER_SPEED
from streaming.delta.samples.newest import TAKES_OVER_AFTER
from tests.jobs.shards.test_batch import rows as rows_of
from tests.plugins.derived import StoredNewest

SECOND = 1_000_000
ROUND = 10 * SECOND
ONE = BrokerId(1)
BROKERS = [BrokerId(number) for number in (1, 2, 3, 4, 5)]
USUAL = SpeedSample(4_000, 4, 0, 4, 0, 3_000)
SLOW = SpeedSample(600_000, 4, 4, 4, 1, 90_000)
ROUNDS = [
    {broker: SLOW if broker == ONE and LEAST_HISTORY <= number < LEAST_HISTORY + 9 else USUAL for broker in BROKERS}
    for number in range(LEAST_HISTORY + 20)
]


def columns(samples: dict[BrokerId, SpeedSample], at: int, **more: Any) -> pa.Table:
    kinds = {"cluster_id": pa.string(), "cluster": pa.string(), "source": pa.string(), "collected_at": pa.int64()}
    names = ("broker", "slowest_response_micros", "replicas_behind", "replicas_out_of_isr", *SpeedSample._fields)
    schema = pa.schema([*kinds.items(), *((name, pa.int32()) for name in names)])
    owner = {"cluster_id": "c", "cluster": "prod", "source": "samples:a", "collected_at": at, **more}
    counts = {"slowest_response_micros": 0, "replicas_behind": 0, "replicas_out_of_isr": 0}
    return pa.Table.from_pylist(
        [{**owner, "broker": broker, **counts, **sample._asdict()} for broker, sample in samples.items()], schema=schema
    )


def concluded(directory: Path, cluster_id: str = "c") -> dict[int, tuple[Any, ...]]:
    return {
        row["broker"]: (row["is_slow"], row["is_overloaded"], row["slow_score"], tuple(row["slow_reasons"] or ()),
                        *(tuple(row[f"{name}_history"]) for name in ("response", "behind", "append")))
        for row in rows_of(directory, BROKER_SPEED.name) if row["cluster_id"] == cluster_id
    }  # fmt: skip


def expected(rounds: list[dict[BrokerId, SpeedSample]]) -> dict[int, tuple[Any, ...]]:
    speeds: dict[BrokerId, BrokerSpeed] = {}
    for number, samples in enumerate(rounds):
        speeds |= after_round(speeds, samples, Micros(number * ROUND))
    return {
        broker: (each.is_slow, each.is_overloaded, each.score, each.reasons, each.responses, each.behind, each.appends)
        for broker, each in speeds.items()
    }


@pytest.mark.parametrize("batch", [1, 7, len(ROUNDS)])
@pytest.mark.parametrize("restarts", [False, True])
def test_in_any_batches_and_restarts_the_rule_sees_rounds_singly(tmp_path: Path, batch: int, *, restarts: bool) -> None:
    table = StoredNewest(tmp_path, BROKER_SPEED)
    for begin in range(0, len(ROUNDS), batch):
        if restarts:
            table = StoredNewest(tmp_path, BROKER_SPEED)
        rounds = [columns(samples, (begin + place) * ROUND) for place, samples in enumerate(ROUNDS[begin:][:batch])]
        table.put(pa.concat_tables(rounds))
        if begin + batch == LEAST_HISTORY + 6 or batch == 1:
            assert concluded(tmp_path) == expected(ROUNDS[: begin + batch])
    assert concluded(tmp_path) == expected(ROUNDS)
    assert not any(slow for slow, *_ in concluded(tmp_path).values())


def test_a_slow_broker_is_in_the_table_with_its_reasons_and_since_when(tmp_path: Path) -> None:
    table = StoredNewest(tmp_path, BROKER_SPEED)
    for number, samples in enumerate(ROUNDS[: LEAST_HISTORY + 6]):
        table.put(columns(samples, number * ROUND))
    one, *others = sorted(rows_of(tmp_path, BROKER_SPEED.name), key=lambda row: row["broker"])
    assert (one["is_slow"], round(one["slow_since"].timestamp())) == (True, LEAST_HISTORY * 10)
    assert one["slow_reasons"][0] == "responds in 600 ms, usually in 4 ms, its peers in 4 ms"
    assert {row["is_slow"] for row in others} == {False}


def test_a_round_that_comes_again_or_is_older_changes_nothing(tmp_path: Path) -> None:
    table = StoredNewest(tmp_path, BROKER_SPEED)
    for number, samples in enumerate(ROUNDS[:14]):
        table.put(columns(samples, number * ROUND))
    before = concluded(tmp_path)
    for number in (13, 2):
        table.put(columns(ROUNDS[number], number * ROUND))
    assert concluded(tmp_path) == before


def test_another_source_takes_over_only_when_the_first_one_is_silent_and_clusters_are_apart(tmp_path: Path) -> None:
    table = StoredNewest(tmp_path, BROKER_SPEED)
    table.put(columns(ROUNDS[0], 0))
    table.put(columns(ROUNDS[0], SECOND, source="samples:b"))
    assert {len(row[4]) for row in concluded(tmp_path).values()} == {1}
    table.put(columns(ROUNDS[0], SECOND, source="samples:b", cluster_id="d"))
    table.put(columns(ROUNDS[0], TAKES_OVER_AFTER + 1, source="samples:b"))
    assert {len(row[4]) for row in concluded(tmp_path).values()} == {2}
    assert {len(row[4]) for row in concluded(tmp_path, "d").values()} == {1}


def test_a_broker_that_is_not_measured_for_long_is_forgotten_with_its_history(tmp_path: Path) -> None:
    table = StoredNewest(tmp_path, BROKER_SPEED)
    table.put(columns(ROUNDS[0], 0))
    others = {broker: USUAL for broker in BROKERS if broker != ONE}
    for number in range(1, 9):
        table.put(columns(others, number * ROUND))
        assert (ONE in concluded(tmp_path)) == (number <= 6)


@pytest.mark.parametrize("is_one_batch", [False, True])
def test_who_was_away_for_long_begins_anew_however_rounds_are_cut(tmp_path: Path, *, is_one_batch: bool) -> None:
    others = {broker: USUAL for broker in BROKERS if broker != ONE}
    rounds = [columns(ROUNDS[0] if number in (0, 8) else others, number * ROUND) for number in range(9)]
    table = StoredNewest(tmp_path, BROKER_SPEED)
    for batch in [pa.concat_tables(rounds)] if is_one_batch else rounds:
        table.put(batch)
    assert {broker: len(row[4]) for broker, row in concluded(tmp_path).items()} == {1: 1, 2: 9, 3: 9, 4: 9, 5: 9}


def test_a_round_that_comes_again_counts_as_it_came_first_in_one_batch_and_in_two(tmp_path: Path) -> None:
    """A collector that was killed measures a round anew."""
    first, again = ({broker: USUAL._replace(response_micros=micros) for broker in BROKERS} for micros in (4_000, 6_000))
    StoredNewest(tmp_path / "one", BROKER_SPEED).put(pa.concat_tables([columns(first, ROUND), columns(again, ROUND)]))
    in_two = StoredNewest(tmp_path / "two", BROKER_SPEED)
    for samples in (first, again):
        in_two.put(columns(samples, ROUND))
    assert concluded(tmp_path / "one") == concluded(tmp_path / "two") == expected([first])


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_rounds_of_one_time_are_two_where_a_clock_was_set_back(tmp_path: Path, *, is_one_batch: bool) -> None:
    without_one = {broker: USUAL for broker in BROKERS if broker != ONE}
    begin, ahead, back = columns(ROUNDS[0], 0), columns(without_one, 5 * ROUND), columns(ROUNDS[0], 5 * ROUND)
    rounds = [begin, ahead, columns(without_one, 3 * ROUND), back]
    table = StoredNewest(tmp_path, BROKER_SPEED)
    for each in [pa.concat_tables(rounds)] if is_one_batch else rounds:
        table.put(each)
    assert {broker: len(responses) for broker, (*_, responses, _, _) in concluded(tmp_path).items()} == {
        broker: 1 + (broker != ONE) for broker in BROKERS
    }
