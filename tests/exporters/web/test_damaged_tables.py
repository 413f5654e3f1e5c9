"""Really damaged tables behind the web server: each costs its own series only, and every answer says which."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - loaded before the user changes, who may not read it
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request

from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.web.app import serving
from exporters.web.endpoints import ENDPOINTS
from exporters.web.server import Endpoints
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
    TABLES,
)
from streaming.settings import ExportSettings
from tests.exporters.conftest import Rows, Tables, put_metrics_and_progress
from tests.exporters.web.test_app import ask
from tests.plugins.local_http import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECOND = 1_000_000
REQUEST = Request({"type": "http", "query_string": b"", "headers": []})
SETTINGS = ExportSettings(listen="127.0.0.1:0", refresh_seconds=0.02)
# A series that comes from the table alone, and so must be absent while it cannot be read.
SERIES_OF = {
    REPLICA_OFFSETS.name: "kafka_topic_partition_current_offset",
    BROKER_METRICS.name: "kafka_server_replicamanager_leadercount",
    SOURCE_PROGRESS.name: "kafka_replication_source_query_up",
    CLUSTER_STATE_TABLE.name: "kafka_replication_cluster_under_min_isr_seconds_total",
    BROKER_STATE_TABLE.name: "kafka_replication_broker_safe_to_stop",
    INCIDENTS.name: "kafka_replication_cluster_open_incidents",
}


def data_gone(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.unlink()


def data_torn(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])


def log_entry_torn(table: Path) -> None:
    entry = newest_entry(table)
    entry.write_text(entry.read_text()[:-40])


def checkpoint_torn(table: Path) -> None:
    """Of the checkpoint that readers begin with a part was written, and the entries that it replaces are gone."""
    log, newest = table / "_delta_log", newest_entry(table)
    later = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    later.write_text(newest.read_text().splitlines()[0] + "\n")
    (log / f"{newest.stem}.checkpoint.parquet").write_bytes(b"PAR1 torn")
    (log / "_last_checkpoint").write_text(f'{{"version":{int(newest.stem)},"size":3}}')
    for older in set(log.glob("*.json")) - {later}:
        older.unlink()


def log_is_a_file(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")
    (table / "_delta_log").write_text("")


def newest_entry(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


DAMAGES = [data_gone, data_torn, log_entry_torn, checkpoint_torn, log_is_a_file]
PAIRS = [(BROKER_METRICS.name, damage) for damage in DAMAGES]
PAIRS += [(name, data_gone) for name in SERIES_OF if name != BROKER_METRICS.name]


@pytest.fixture
def live_tables(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Every table with something of a cluster that was observed just now."""
    now = micros_now()
    rows = Rows(start=now - 30 * SECOND)
    monkeypatch.setattr("tests.exporters.conftest.START", rows.start)
    baseline = [
        rows.cluster_row(now),
        *(rows.broker(number) for number in (1, 2, 3)),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2], 1), left_isr=[3], cause="fenced"),
    ]
    tables.commit(*baseline, rows.source(now))
    tables.project(baseline, 1)
    tables.derive(rows, now, as_of=1)
    offsets = {**rows.owner, "collected_at": now, "topic_id": "id-of-orders", "topic": "orders", "source": "offsets:1"}
    replica = {"partition": 0, "broker": 1, "log_start_offset": 5, "high_watermark": 70}
    tables.put(REPLICA_OFFSETS.name, {**offsets, **replica})
    put_metrics_and_progress(tables, rows)
    return tables


@contextmanager
def served(tables: Tables) -> Iterator[str]:
    with serving(tables.directory, SETTINGS) as address:
        wait_until(lambda: ask(address, "/-/ready")[0] == 200)
        yield address


def scraped(address: str) -> str:
    status, _, body = ask(address, "/metrics")
    assert status == 200, body
    return body.decode()


def families(text: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def broken(text: str) -> set[str]:
    """The tables that are exposed as unreadable."""
    return set(re.findall(r'exporter_table_read_success\{table="(\w+)"\} 0', text))


def put_again(tables: Tables, name: str) -> None:
    """Another version of the table, as the job writes one a second."""
    tables.opened.pop(name, None)
    rows = [] if tables._open(name).version() == 0 else tables._open(name).to_pyarrow_table().to_pylist()
    tables.put(name, *rows, as_of=1)


@pytest.mark.parametrize(("name", "damage"), PAIRS, ids=lambda value: getattr(value, "__name__", value))
def test_a_side_table_damaged_before_the_start_costs_its_own_series_only(
    live_tables: Tables, name: str, damage: Callable[[Path], None]
) -> None:
    with served(live_tables) as address:
        whole = families(scraped(address))
    assert set(SERIES_OF.values()) <= whole
    damage(live_tables.directory / name)
    with served(live_tables) as address:
        text = scraped(address)
        lost = whole - families(text)
        assert SERIES_OF[name] in lost
        assert broken(text) == {name}
        others = set(SERIES_OF.values()) - {SERIES_OF[name]}
        # The advice is dated by the row of its cluster: without that it cannot be shown to be fresh.
        assert lost & others == ({SERIES_OF[BROKER_STATE_TABLE.name]} if name == CLUSTER_STATE_TABLE.name else set())
        assert 'kafka_replication_partition_under_replicated{cluster="main",topic="orders",partition="0"} 1' in text
        assert 'isr_departures_total{cluster="main",broker="3",cause="fenced"} 1' in text
        ready = ask(address, "/-/ready")[2].decode()
        assert f"without {name}: " in ready
        assert "Traceback" not in ready


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_state_table_damaged_before_the_start_is_rebuilt_from_the_changes(
    live_tables: Tables, damage: Callable[[Path], None]
) -> None:
    damage(live_tables.directory / PARTITION_STATE_TABLE.name)
    with served(live_tables) as address:
        text = scraped(address)
        is_known = damage is not log_is_a_file  # then there is no table, and the changes are all there is
        assert broken(text) == ({PARTITION_STATE_TABLE.name} if is_known else set())
        assert 'kafka_replication_partition_under_replicated{cluster="main",topic="orders",partition="0"} 1' in text
        assert set(SERIES_OF.values()) <= families(text)
        assert (f"without {PARTITION_STATE_TABLE.name}: " in ask(address, "/-/ready")[2].decode()) == is_known


@pytest.mark.parametrize(
    ("name", "damage"),
    list(zip(SERIES_OF, [data_gone, log_entry_torn, log_is_a_file] * 2, strict=True)),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_side_table_damaged_at_run_time_is_left_out_and_comes_back(
    live_tables: Tables, name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(live_tables.directory / name, copy)
    with served(live_tables) as address:
        assert broken(scraped(address)) == set()
        put_again(live_tables, name)
        damage(live_tables.directory / name)
        wait_until(lambda: broken(scraped(address)) == {name})
        assert SERIES_OF[name] not in families(scraped(address))
        now = micros_now()
        live_tables.commit(Rows().partition("orders", 1, Rows().state([1, 2], [1], 1), now))
        wait_until(lambda: 'topic="orders",partition="1"' in scraped(address))
        shutil.rmtree(live_tables.directory / name)
        shutil.copytree(copy, live_tables.directory / name)
        wait_until(lambda: broken(scraped(address)) == set())
        assert SERIES_OF[name] in families(scraped(address))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_without_a_readable_change_log_it_is_not_ready_and_says_why(
    live_tables: Tables, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(live_tables.directory / PARTITION_CHANGES.name)
    with serving(live_tables.directory, SETTINGS) as address:
        wait_until(lambda: b"cannot" in ask(address, "/-/ready")[2] or b"older" in ask(address, "/-/ready")[2])
        for path in ("/-/ready", "/metrics"):
            status, _, body = ask(address, path)
            assert status == 503
            assert body.decode().count("\n") == 1
            assert PARTITION_CHANGES.name in body.decode()
    assert "nothing is served yet" in caplog.text
    assert "last" not in caplog.text


def test_a_damaged_change_log_keeps_the_last_state_and_the_side_tables_go_on(live_tables: Tables) -> None:
    with served(live_tables) as address:
        entry = newest_entry(live_tables.directory / PARTITION_CHANGES.name)
        entry.with_name(f"{int(entry.stem) + 1:020}.json").write_text("{ torn")
        wait_until(lambda: broken(scraped(address)) == {PARTITION_CHANGES.name})
        rows = Rows()
        sample = {**rows.owner, "collected_at": micros_now(), "source": "broker_metrics:1", "broker": 9, "metric": "m"}
        live_tables.put(BROKER_METRICS.name, {**sample, "metric_value": 7.0})
        wait_until(lambda: 'm{cluster="main",broker="9"} 7' in scraped(address))
        assert 'partition_under_replicated{cluster="main",topic="orders",partition="0"} 1' in scraped(address)
        assert f"without {PARTITION_CHANGES.name}: " in ask(address, "/-/ready")[2].decode()


@pytest.mark.parametrize("part", ["", "_delta_log"])
def test_a_table_that_may_not_be_read_costs_its_own_series_only(live_tables: Tables, part: str) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        directory = Path(open_to_all) / "tables"
        shutil.copytree(live_tables.directory, directory)
        with without_permission(directory / INCIDENTS.name / part), served(Tables(directory)) as address:
            text = scraped(address)
            assert broken(text) == {INCIDENTS.name}
            assert "ermission denied" in ask(address, "/-/ready")[2].decode()
            assert set(SERIES_OF.values()) - families(text) == {SERIES_OF[INCIDENTS.name]}


@contextmanager
def without_permission(folder: Path) -> Iterator[None]:
    """Be a user who may not look into a folder; root would be refused nothing."""
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


NULLABLE = [
    (table, column.name)
    for table in (*SERIES_OF, PARTITION_STATE_TABLE.name)
    for column in TABLES[table].columns
    if column.nullable
]


def test_a_null_in_any_column_that_may_be_null_gives_no_500_while_it_is_ready(live_tables: Tables) -> None:
    refresher = Refresher(TablesReader(live_tables.directory), 0.01, "1.2.3")
    for name, column in NULLABLE:
        live_tables.opened.pop(name, None)
        rows = live_tables._open(name).to_pyarrow_table().to_pylist()
        live_tables.put(name, *({**row, column: None} for row in rows), as_of=1)
        refresher = Refresher(TablesReader(live_tables.directory), 0.01, "1.2.3")
        refresher.refresh_once()
        endpoints = Endpoints(refresher, 60.0)
        assert endpoints.ready(REQUEST).status_code == 200, (name, column)
        assert asyncio.run(endpoints.metrics(REQUEST)).status_code == 200, (name, column)
        for endpoint in ENDPOINTS:
            assert endpoints.api.respond(endpoint, REQUEST).status_code in endpoint.statuses, (name, column, endpoint)
        live_tables.put(name, *rows, as_of=1)


def test_a_limit_beyond_every_number_is_refused(live_tables: Tables) -> None:
    with served(live_tables) as address:
        for path in ("partitions", "events", "incidents"):
            for limit in ("99999999999999999999", "9" * 5000):
                assert ask(address, f"/api/v1/{path}?limit={limit}")[0] == 400
