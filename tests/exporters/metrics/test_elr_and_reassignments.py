"""Who may be elected besides the ISR, what is being reassigned, and what topics are for."""

from __future__ import annotations

import pytest

from exporters.read_model.reader import TablesReader
from tests.exporters.conftest import Rows, Tables
from tests.exporters.metrics.test_exposition import SECOND, Samples, exposed, samples

PREFIX = "kafka_replication_"


def of_cluster(shown: Samples, name: str) -> float | None:
    return shown.get((f"{PREFIX}cluster_{name}", (("cluster", "main"),)))


def by_label(shown: Samples, name: str, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for (each, labels), value in shown.items() if each == PREFIX + name}


@pytest.fixture
def now(rows: Rows) -> int:
    return rows.start + 30 * SECOND


def scraped(tables: Tables, now: int) -> Samples:
    return samples(exposed(TablesReader(tables.directory), now + SECOND))


def test_partitions_with_an_elr_are_counted_and_say_how_many_are_in_it(tables: Tables, rows: Rows, now: int) -> None:
    tables.commit(
        rows.cluster_row(now),
        rows.source(now),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1], 1, elr=[2, 3])),
        rows.partition("orders", 1, rows.state([1, 2, 3], [], -1, last_known_elr=[3])),
        rows.partition("orders", 2, rows.state([1, 2, 3], [1, 2], 1)),
    )
    shown = scraped(tables, now)
    assert of_cluster(shown, "elr_partitions") == 1
    assert by_label(shown, "partition_eligible_leader_replicas", "partition") == {"0": 2}
    assert by_label(shown, "partition_last_known_leader", "partition") == {"1": 3}
    assert by_label(shown, "replica_elr_member", "broker") == {"2": 1, "3": 1}


@pytest.mark.parametrize(("source_kind", "elr", "count"), [
    ("metadata_log", [], 0), ("poll", [], None), ("poll", [2], 1),
])  # fmt: skip
def test_without_any_elr_the_count_is_0_where_the_source_would_report_it(
    source_kind: str, elr: list[int], count: int | None, tables: Tables, rows: Rows
) -> None:
    now = rows.start + 30 * SECOND
    rows.source_kind = source_kind
    tables.commit(rows.cluster_row(now), rows.source(now), rows.partition("a", 0, rows.state([1, 2], [1], 1, elr=elr)))
    assert of_cluster(scraped(tables, now), "elr_partitions") == count


def put_moving(tables: Tables, rows: Rows, now: int, copied: int | None) -> None:
    """Write a reassignment to two brokers, one that removes a broker, and a partition that is not reassigned."""
    moving = rows.state([1, 2, 4, 5], [1, 2], 1, adding_replicas=[4, 5])
    tables.commit(
        rows.cluster_row(now),
        rows.source(now),
        rows.partition("orders", 0, moving),
        rows.partition("orders", 1, rows.state([1, 2, 3], [1, 2, 3], 1, removing_replicas=[3])),
        rows.partition("clicks", 0, rows.state([1, 2], [1, 2], 1)),
    )
    common = {**rows.owner, "collected_at": now, "source": "offsets:collector-1", "partition": 0}
    orders, clicks = ({**common, "topic_id": f"id-of-{topic}", "topic": topic} for topic in ("orders", "clicks"))
    tables.put(
        "replica_offsets",
        {**orders, "broker": 1, "size_bytes": 1000},
        {**orders, "broker": 4, "size_bytes": copied},
        {**orders, "broker": 5, "size_bytes": 1200},  # it has more than the leader, whose retention was faster
        {**clicks, "broker": 2, "size_bytes": 7},
    )


@pytest.mark.parametrize(("copied", "to_go"), [(400, 600), (None, None)])
def test_reassignments_are_counted_by_topic_with_the_bytes_that_are_left_to_copy(
    copied: int | None, to_go: int | None, tables: Tables, rows: Rows, now: int
) -> None:
    put_moving(tables, rows, now, copied)
    shown = scraped(tables, now)
    assert of_cluster(shown, "reassigning_partitions") == 2
    assert by_label(shown, "topic_reassigning_partitions", "topic") == {"orders": 2, "clicks": 0}
    assert of_cluster(shown, "reassignment_remaining_bytes") == to_go


def test_without_reassignments_nothing_is_left_to_copy(tables: Tables, rows: Rows, now: int) -> None:
    put_moving(tables, rows, now, 400)
    reader = TablesReader(tables.directory)
    assert of_cluster(samples(exposed(reader, now)), "reassignment_remaining_bytes") == 600
    done = (rows.state([1, 2, 4, 5], [1, 2, 4, 5], 1), rows.state([1, 2], [1, 2], 1))
    tables.commit(*(rows.partition("orders", number, state, now) for number, state in enumerate(done)))
    assert of_cluster(samples(exposed(reader, now)), "reassignment_remaining_bytes") == 0


def test_a_topic_that_is_internal_has_its_role(tables: Tables, rows: Rows, now: int) -> None:
    tables.commit(
        rows.cluster_row(now),
        rows.source(now),
        *(rows.partition(topic, 0, rows.state([1], [1], 1)) for topic in ("__consumer_offsets", "orders")),
    )
    common = {**rows.owner, "collected_at": now, "source": "s:c", "partition_count": 1, "replication_factor": 1}
    roles = {"__consumer_offsets": "consumer_offsets", "orders": None, "__transaction_state": "transaction_state"}
    tables.put(
        "topic_settings",
        *({**common, "topic_id": f"id-of-{topic}", "topic": topic, "role": role} for topic, role in roles.items()),
    )
    shown = scraped(tables, now)
    assert by_label(shown, "topic_role_info", "topic") == {"__consumer_offsets": 1}
    assert by_label(shown, "topic_role_info", "role") == {"consumer_offsets": 1}
