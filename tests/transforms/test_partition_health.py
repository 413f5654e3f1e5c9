"""The Columns say what ``contracts.health`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts import health
from streaming.transforms import partition_health
from tests.strategies import generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS = st.lists(st.integers(-1, 5), max_size=5)
PARTITIONS = st.tuples(BROKERS, BROKERS, BROKERS, st.integers(-1, 5), st.none() | st.integers(0, 6))
SCHEMA = "replicas array<int>, isr array<int>, adding array<int>, leader int, configured int"


@pytest.mark.spark
def test_every_definition_is_the_same_as_a_column(spark: SparkSession) -> None:
    cases = generated(PARTITIONS, 500)
    column = {name: F.col(name) for name in ("replicas", "isr", "adding", "leader", "configured")}
    effective = partition_health.effective_min_isr(column["configured"], column["replicas"])
    told = spark.createDataFrame(cases, SCHEMA).select(
        partition_health.replication_factor(column["replicas"], column["adding"]),
        effective,
        partition_health.is_offline(column["leader"]),
        partition_health.is_under_replicated(column["replicas"], column["isr"], column["adding"]),
        partition_health.is_under_min_isr(effective, column["isr"]),
        partition_health.is_at_min_isr(effective, column["isr"]),
        partition_health.is_off_preferred_leader(column["replicas"], column["leader"]),
    )

    for case, row in zip(cases, told.collect(), strict=True):
        assert expected(*case) == tuple(row), case


def expected(
    replicas: list[int], isr: list[int], adding: list[int], leader: int, configured: int | None
) -> tuple[int | bool | None, ...]:
    minimum = health.effective_min_isr(configured, replicas)
    return (
        health.replication_factor(replicas, adding),
        minimum,
        health.is_offline(leader),
        health.is_under_replicated(replicas, isr, adding),
        health.is_under_min_isr(minimum, isr),
        health.is_at_min_isr(minimum, isr),
        health.is_off_preferred_leader(tuple(replicas), leader),
    )
