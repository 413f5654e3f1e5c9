"""Really damaged tables behind the web endpoints: each costs its own series only, and every answer says which.

What each damage of each table costs is shown step by step in ``read_model/test_damaged_side_tables.py``; here a few
pass through the whole server, beside the thread that reads them.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - loaded before the user changes, who may not read it
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.requests import Request

from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.web.server import Endpoints, serving
from streaming.settings import ExportSettings
from tests.exporters.conftest import SECOND, START, Rows, Stopwatch, Tables, write_live_cluster
from tests.exporters.damages import DAMAGES, data_gone, log_entry_torn, log_is_a_file, newest_entry
from tests.exporters.web.test_app import ask
from tests.plugins.local_http import wait_until

NOW = START + 30 * SECOND
REQUEST = Request({"type": "http", "query_string": b"", "headers": []})
SETTINGS = ExportSettings(listen="127.0.0.1:0", refresh_interval=0.02)
# A series that comes from the table alone, and so must be absent while it cannot be read.
SERIES_OF = {
    "replica_offsets": "kafka_topic_partition_current_offset",
    "broker_metrics": "kafka_server_replicamanager_leadercount",
    "source_progress": "kafka_replication_source_query_up",
    "cluster_state": "kafka_replication_cluster_under_min_isr_seconds_total",
    "broker_state": "kafka_replication_broker_safe_to_stop",
    "incidents": "kafka_replication_cluster_open_incidents",
}
SHRUNK = 'kafka_replication_partition_under_replicated{cluster="main",topic="orders",partition="0"} 1'


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table with something of a cluster that was observed at ``NOW``; to be copied."""
    directory = tmp_path_factory.mktemp("written") / "tables"
    write_live_cluster(Tables(directory), NOW)
    return directory


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "tables")


@pytest.fixture
def live_tables(tables: Tables) -> Tables:
    """The same, observed just now."""
    write_live_cluster(tables, micros_now())
    return tables


def read_once(directory: Path) -> Endpoints:
    """Give the endpoints after one reading, as if it were ``NOW``."""
    refresher = Refresher(TablesReader(directory), 60.0, "1.2.3")
    refresher.refresh_once()
    return Endpoints(refresher, 60.0, clock=lambda: NOW)


def page_of(endpoints: Endpoints) -> str:
    response = asyncio.run(endpoints.metrics(REQUEST))
    assert response.status_code == 200, response.body
    return bytes(response.body).decode()


def ready_page(endpoints: Endpoints) -> str:
    return bytes(endpoints.ready(REQUEST).body).decode()


@contextmanager
def served(tables: Tables) -> Iterator[str]:
    with serving(tables.directory, SETTINGS, rest_after_error=0.05) as address:
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


@pytest.fixture(scope="module")
def whole(written: Path) -> set[str]:
    """The families of series of all tables."""
    return families(page_of(read_once(written)))


@pytest.mark.parametrize("name", SERIES_OF)
def test_a_side_table_damaged_before_the_start_costs_its_own_series_only(
    name: str, whole: set[str], copied: Path
) -> None:
    assert set(SERIES_OF.values()) <= whole
    data_gone(copied / name)
    endpoints = read_once(copied)
    text = page_of(endpoints)
    lost = whole - families(text)
    assert SERIES_OF[name] in lost
    assert broken(text) == {name}
    others = set(SERIES_OF.values()) - {SERIES_OF[name]}
    # The advice is dated by the row of its cluster: without that it cannot be shown to be fresh.
    assert lost & others == ({SERIES_OF["broker_state"]} if name == "cluster_state" else set())
    assert SHRUNK in text
    assert 'isr_departures_total{cluster="main",broker="3",cause="fenced"} 1' in text
    assert f"without {name}: " in ready_page(endpoints)
    assert "Traceback" not in ready_page(endpoints)


def test_that_a_table_cannot_be_read_is_logged_once_and_that_it_can_be_again(
    copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "exporters.read_model.refresher")
    at, away = copied / "incidents", tmp_path / "away"
    refresher = Refresher(TablesReader(copied, rest_after_error=0.0, monotonic=Stopwatch()), 60.0, "1.2.3")
    refresher.refresh_once()
    assert not caplog.messages
    at.rename(away)
    for _ in range(3):
        refresher.refresh_once()
    (left_out,) = caplog.messages
    assert left_out.startswith("incidents is left out, the other tables are served: ")
    away.rename(at)
    for _ in range(3):
        refresher.refresh_once()
    assert caplog.messages == [left_out, "the table incidents can be read again"]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_state_table_damaged_before_the_start_is_rebuilt_from_the_changes(
    copied: Path, damage: Callable[[Path], None]
) -> None:
    damage(copied / "partition_state")
    endpoints = read_once(copied)
    text = page_of(endpoints)
    is_known = damage is not log_is_a_file  # then there is no table, and the changes are all there is
    assert broken(text) == ({"partition_state"} if is_known else set())
    assert SHRUNK in text
    assert set(SERIES_OF.values()) <= families(text)
    assert ("without partition_state: " in ready_page(endpoints)) == is_known


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_without_a_readable_change_log_it_is_not_ready_and_says_why(
    copied: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(copied / "partition_changes")
    endpoints = read_once(copied)
    for response in (endpoints.ready(REQUEST), asyncio.run(endpoints.metrics(REQUEST))):
        body = bytes(response.body).decode()
        assert (response.status_code, body.count("\n")) == (503, 1)
        assert "cannot" in body or "older" in body
        assert "partition_changes" in body
    assert "nothing is served yet" in caplog.text
    assert "last" not in caplog.text


@pytest.mark.parametrize("part", ["", "_delta_log"])
def test_a_table_that_may_not_be_read_costs_its_own_series_only(written: Path, part: str) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        directory = Path(open_to_all) / "tables"
        shutil.copytree(written, directory)
        with without_permission(directory / "incidents" / part):
            endpoints = read_once(directory)
            text = page_of(endpoints)
            assert broken(text) == {"incidents"}
            assert "ermission denied" in ready_page(endpoints)
            assert set(SERIES_OF.values()) - families(text) == {SERIES_OF["incidents"]}


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


def damaged_later(tables: Tables, name: str, damage: Callable[[Path], None], beside: Path) -> Path:
    """Make a copy of a table with another version, as the job writes one a second, and damage that."""
    shutil.copytree(tables.directory / name, beside / name)
    other = Tables(beside)
    other.put(name, *other.open(name).to_pyarrow_table().to_pylist(), as_of=1)
    damage(beside / name)
    return beside / name


def bring_in(table: Path, at: Path, away: Path) -> None:
    """Put a folder in the place of a table; between the two renames the table is gone, which is a damage, too."""
    at.rename(away)
    table.rename(at)


@pytest.mark.parametrize(
    ("name", "damage"),
    [("replica_offsets", data_gone), ("broker_metrics", log_entry_torn), ("source_progress", log_is_a_file)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_side_table_damaged_at_run_time_is_left_out_and_comes_back(
    live_tables: Tables, name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    at, whole = live_tables.directory / name, tmp_path / "whole"
    damaged = damaged_later(live_tables, name, damage, tmp_path / "beside")

    def is_as(address: str, unreadable: set[str]) -> bool:
        text = scraped(address)
        return (broken(text), SERIES_OF[name] in families(text)) == (unreadable, not unreadable)

    with served(live_tables) as address:
        assert is_as(address, set())
        bring_in(damaged, at, whole)
        wait_until(lambda: is_as(address, {name}))
        now = micros_now()
        live_tables.commit(Rows().partition("orders", 1, Rows().state([1, 2], [1], 1), now))
        wait_until(lambda: 'topic="orders",partition="1"' in scraped(address))
        bring_in(whole, at, tmp_path / "damaged")
        wait_until(lambda: is_as(address, set()))


def test_a_damaged_change_log_keeps_the_last_state_and_the_side_tables_go_on(live_tables: Tables) -> None:
    with served(live_tables) as address:
        entry = newest_entry(live_tables.directory / "partition_changes")
        entry.with_name(f"{int(entry.stem) + 1:020}.json").write_text("{ torn")
        wait_until(lambda: broken(scraped(address)) == {"partition_changes"})
        rows = Rows()
        sample = {**rows.owner, "collected_at": micros_now(), "source": "broker_metrics:1", "broker": 9, "metric": "m"}
        live_tables.put("broker_metrics", {**sample, "metric_value": 7.0})
        wait_until(lambda: 'm{cluster="main",broker="9"} 7' in scraped(address))
        assert SHRUNK in scraped(address)
        assert "without partition_changes: " in ask(address, "/-/ready")[2].decode()
