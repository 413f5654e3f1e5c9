"""What the job adds up: shown while it is true, withheld once the job adds up no more, and never taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exporters.read_model.reader import TablesReader
from tests.exporters.conftest import restless
from tests.exporters.metrics.test_exposition import exposed, samples

SECOND = 1_000_000
SAFE = "kafka_replication_broker_safe_to_stop"
ADVICE = (SAFE, "kafka_replication_broker_suspect_score", "kafka_replication_broker_would_go_offline_partitions")
OFFLINE_SECONDS = "kafka_replication_cluster_offline_seconds_total"

Told = dict[str, dict[str, float]]


@pytest.fixture
def reader(busy_cluster: Any) -> TablesReader:
    return restless(busy_cluster.directory)


@pytest.fixture
def told(reader: TablesReader) -> Callable[[int], Told]:
    """Read the tables and give the page: metric, then broker ("" for the cluster), then value."""

    def now(moment: int) -> Told:
        page: Told = {}
        for (name, labels), value in samples(exposed(reader, moment)).items():
            page.setdefault(name, {})[dict(labels).get("broker", "")] = value
        return page

    return now


def test_advice_vanishes_when_the_job_adds_up_no_more_although_its_changes_go_on(
    told: Any, tables: Any, rows: Any
) -> None:
    assert set(ADVICE) <= set(told(rows.start + 31 * SECOND))
    tables.commit(rows.source(rows.start + 90 * SECOND))
    assert set(ADVICE) <= set(told(rows.start + 89 * SECOND))
    later = told(rows.start + 90 * SECOND)
    assert set(ADVICE) & set(later) == set()
    assert later["kafka_replication_broker_led_partitions"]["2"] == 1
    assert later[OFFLINE_SECONDS] == {"": 4}
    tables.derive(rows, rows.start + 90 * SECOND, as_of=4)
    assert set(ADVICE) <= set(told(rows.start + 90 * SECOND))


def test_a_newer_row_of_the_cluster_does_not_make_older_advice_about_its_brokers_true(
    told: Any, tables: Any, rows: Any
) -> None:
    told(rows.start + 31 * SECOND)
    tables.commit(rows.source(rows.start + 90 * SECOND))
    cluster = {**rows.owner, **rows.cluster_row()["cluster_after"], "primary_watermark": rows.start + 90 * SECOND}
    tables.put("cluster_state", cluster, as_of=4)
    assert SAFE not in told(rows.start + 91 * SECOND)
    tables.put("broker_state", {**rows.owner, "broker": 1, "is_safe_to_stop": False}, as_of=4)
    assert told(rows.start + 91 * SECOND)[SAFE] == {"1": 0}


def test_seconds_of_all_partitions_never_go_back_and_are_not_those_that_a_full_report_may_take_back(
    told: Any, tables: Any, rows: Any
) -> None:
    moment = rows.start + 31 * SECOND
    cluster = {**rows.owner, **rows.cluster_row()["cluster_after"]}
    steps = ((5.0, None), (4.9999, None), (5.0000001, None), (None, None), (1005.0, rows.start), (6.5, None))
    values = []
    for seconds, gap_began in steps:
        version = tables.commit(rows.source(moment - SECOND))
        tables.put("cluster_state", {**cluster, "offline_seconds": seconds, "sight_until": gap_began}, as_of=version)
        values.append(told(moment)[OFFLINE_SECONDS][""])
    assert values == [5, 5, 5, 5, 5, 6.5]


def test_what_the_job_has_not_added_up_yet_is_absent(tables: Any, rows: Any) -> None:
    tables.commit(rows.cluster_row(), rows.broker(1), rows.source(rows.start))
    page = exposed(TablesReader(tables.directory), rows.start)
    assert "kafka_replication_broker_registered" in page
    assert [name for name in (*ADVICE, OFFLINE_SECONDS, "_incidents") if name in page] == []
