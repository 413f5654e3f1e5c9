"""``isrwatch state --reassignments``: what is moved, what is still to come, and how much of it; unknown is "?"."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporters.conftest import SECOND, Rows, Tables
from tests.exporters.terminal.printed import objects, state

MIB = 1024**2


@pytest.fixture
def moving(tables: Tables, rows: Rows) -> Path:
    """Moves one partition of ``orders`` from 3 to 4 and 5, one of ``clicks`` to a broker without samples, one away."""
    moved = rows.state([1, 2, 4, 5, 3], [1, 2, 3], 1, adding_replicas=[4, 5], removing_replicas=[3])
    now = tables.observe(
        rows,
        rows.partition("orders", 0, moved),
        rows.partition("orders", 1, rows.state([1, 2, 3], [1, 2], 1)),
        rows.partition("clicks", 0, rows.state([1, 2, 6], [1, 2], 1, adding_replicas=[6])),
        rows.partition("pages", 0, rows.state([1, 2, 3], [1, 2, 3], 1, removing_replicas=[3])),
    )
    sampled = {**rows.owner, "collected_at": now - SECOND, "source": "samples:collector-1", "partition": 0}
    orders, clicks = ({**sampled, "topic_id": f"id-of-{topic}", "topic": topic} for topic in ("orders", "clicks"))
    tables.put(
        "replica_offsets",
        {**orders, "broker": 1, "size_bytes": 100 * MIB, "lag": 0},
        {**orders, "broker": 4, "size_bytes": 40 * MIB, "lag": 6_000},
        {**orders, "broker": 5, "size_bytes": 101 * MIB, "lag": 10},  # it holds what the leader has deleted already
        {**clicks, "broker": 1, "size_bytes": 100 * MIB, "lag": 0},
        {**orders, "partition": 1, "broker": 4, "size_bytes": 1, "lag": 1},
    )
    return tables.directory


def test_each_moved_partition_has_what_its_new_replicas_have_yet_to_copy(moving: Path) -> None:
    rows = objects(moving, "--reassignments")
    shown = ("adding_replicas", "removing_replicas", "replicas_to_go", "bytes_to_go", "records_to_go")
    assert {f"{row['topic']}-{row['partition']}": tuple(row[name] for name in shown) for row in rows} == {
        "clicks-0": ([6], [], [6], None, None),
        "orders-0": ([4, 5], [3], [4, 5], 60 * MIB, 6_010),
        "pages-0": ([], [3], [], 0, 0),
    }
    line = state(moving, "--reassignments", "--topic", "orders").strip()
    assert line == "orders-0  4,5  3  4,5  60.0 MiB  6,010"
    assert state(moving, "--reassignments", "--topic", "clicks").strip() == "clicks-0  6  6  ?  ?"


def test_nothing_is_being_reassigned(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2], [1], 1)))
    assert state(tables.directory, "--reassignments") == "nothing is being reassigned\n"
    assert objects(tables.directory, "--reassignments") == []
