"""Where each value comes from, and what the reference says of it."""

from __future__ import annotations

import pytest

from exporters.metrics.catalogue import CATALOGUE, reference
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.metrics.metric import OWN, ExporterMetric, Metric, SampledMetric
from streaming.contracts.sample_tables import SAMPLE_TABLES
from streaming.contracts.tables import TABLES

EVERY = (*CATALOGUE, *(each.metric for each in JMX_METRICS))


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_a_value_comes_from_columns_that_exist_or_from_the_exporter_itself(metric: Metric) -> None:
    if isinstance(metric, ExporterMetric):
        assert metric.source == OWN
        return
    named = metric.source.split(", ")
    columns = [f"{table}.{column}" for table, definition in TABLES.items() for column in definition.column_names()]
    assert [each for each in named if each not in columns] == []
    assert len(named) == len(set(named))


def test_samples_are_dated_by_a_table_of_samples() -> None:
    tables = {metric.table for metric in EVERY if isinstance(metric, SampledMetric)}
    assert tables <= {table.name for table in SAMPLE_TABLES}


def test_the_reference_says_of_each_metric_where_its_value_comes_from_and_who_decides_on_it() -> None:
    rows = {line.split("`")[1]: line.split(" | ") for line in reference().splitlines() if line.startswith("| `")}
    assert [rows[metric.name][4] for metric in EVERY] == [metric.source for metric in EVERY]
    assert rows["kafka_replication_group_lag_records"][4:] == ["group_offsets.lag", "stable |"]
    assert rows["kafka_consumergroup_lag"][4:] == ["group_offsets.lag", "kafka_exporter's |"]
    assert rows["kafka_replication_exporter_series"][4:] == [OWN, "stable |"]
    assert rows["kafka_log_log_size"][4:] == [
        "replica_offsets.size_bytes",
        "`kafka.log:type=Log,name=Size,topic=*,partition=*` |",
    ]
