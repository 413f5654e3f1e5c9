"""Moments of the past over a store: what a moment needs is fetched once, and the state is that of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from exporters.read_model import kept_rows
from exporters.read_model.past import ChangeScope, Past
from streaming.contracts.tables import CLUSTER_STATE_TABLE
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import copies
from streaming.delta.log.copies import ColumnBounds, FileCopies
from streaming.delta.log.queries import read_all
from streaming.delta.log.storage import table_at
from streaming.delta.store.objects import delete, put
from streaming.delta.store.place import Url, place_of
from streaming.errors import TableUnreadable
from tests.exporters.conftest import SECOND, START, Rows, Tables
from tests.exporters.meaning import folded, of_moment
from tests.stores.fault_proxy import FaultProxy, fault_proxy
from tests.stores.s3 import moto

pytestmark = [pytest.mark.process, pytest.mark.store]
MINUTE = 60 * SECOND
DATA = ("GET", "data")
READS_OF_A_COMMIT = 4
"""By delta-rs twice, and once for an entry behind it; once more for the transactions in it."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A history of six commits, a minute each, of two clusters."""
    tables = Tables(tmp_path_factory.mktemp("past") / "tables")
    for minute in range(6):
        at, rows = START + minute * MINUTE, Rows(cluster_id=f"id-{minute % 2}", cluster=f"c{minute % 2}")
        state = rows.state([1, 2, 4], [1, 2, 4][: 3 - minute % 3], 1, change_number=minute)
        tables.commit(
            rows.cluster_row(at),
            rows.broker(4, at, port=minute),
            rows.partition("orders", 0, state, at),
            rows.source(at),
        )
    rows = [Rows(cluster_id=f"id-{number}", cluster=f"c{number}") for number in (0, 1)]
    end = START + 6 * MINUTE
    tables.put(
        CLUSTER_STATE_TABLE.name, *({**each.owner, **each.cluster_row(end)["cluster_after"]} for each in rows), as_of=5
    )
    return tables


@pytest.fixture(scope="module")
def proxy(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with moto(tmp_path_factory.mktemp("store")) as store, fault_proxy(store) as running:
        upload(tables.directory, place(running))
        yield running


def upload(folder: Path, root: Url) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            put(root / str(file.relative_to(folder)), file.read_bytes())


def place(proxy: FaultProxy, name: str = "tables") -> Url:
    url = place_of(f"{proxy.store.url}/{name}", proxy.store.options)
    assert isinstance(url, Url)
    return url


def test_the_state_is_that_of_a_folder_and_each_file_is_fetched_once(tables: Tables, proxy: FaultProxy) -> None:
    past, local = Past(place(proxy)), Past(tables.directory)
    rows = pa.concat_tables(part for _, part in ChangeReader(tables.directory / "partition_changes").poll())
    assert past.range() == local.range()
    assert past.snapshot(START).clusters
    fetched = proxy.counts[DATA]
    for minute in (5, 3, 0, 4, 2, 1):
        at = START + minute * MINUTE
        assert of_moment(past.snapshot(at)) == folded(rows, at)
        assert of_moment(past.snapshot(at, ("id-1",))).keys() <= {"id-1"}
        for scope in (ChangeScope(), ChangeScope("id-0", "orders"), ChangeScope("id-1", broker=4)):
            assert past.previous(at, scope) == local.previous(at, scope)
            assert past.next(at, scope) == local.next(at, scope)
    assert proxy.counts[DATA] == fetched


def test_what_is_too_large_is_asked_of_the_store_and_gives_the_same(
    tables: Tables, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "LARGEST_BYTES", 0)
    at = START + 3 * MINUTE
    assert of_moment(Past(place(proxy)).snapshot(at)) == of_moment(Past(tables.directory).snapshot(at))


def test_without_room_for_temporary_files_the_store_is_asked(
    tables: Tables, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies, "TemporaryDirectory", refuse)
    at = START + 3 * MINUTE
    assert of_moment(Past(place(proxy)).snapshot(at)) == of_moment(Past(tables.directory).snapshot(at))


def test_a_file_that_is_missing_is_one_sentence_and_is_looked_for_again(tables: Tables, proxy: FaultProxy) -> None:
    past, at = Past(place(proxy)), START + 3 * MINUTE
    file = next((tables.directory / "partition_changes").rglob("*.parquet"))
    there = place(proxy) / str(file.relative_to(tables.directory))
    delete(there)
    with pytest.raises(TableUnreadable, match=r"cannot read the table s3://.* its data file .* is missing"):
        past.snapshot(at)
    put(there, file.read_bytes())
    assert past.snapshot(at).clusters


def test_files_that_were_needed_last_stay_and_others_go(
    tables: Tables, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(proxy) / "partition_changes"
    table, fetched = table_at(path), FileCopies(path)
    monkeypatch.setattr(copies, "KEPT_BYTES", 1)
    for version in (1, 4, 1):
        held = fetched.holding(table, {"version": ColumnBounds(version, version)})
        assert {*read_all(held)["version"].to_pylist()} == {version}
    everything = fetched.holding(table, {})
    assert read_all(everything).num_rows == read_all(table_at(tables.directory / "partition_changes")).num_rows


def test_what_was_committed_since_is_read_by_its_entries_alone_and_another_table_is_opened(
    tables: Tables, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "SECONDS_BETWEEN_LOOKS", 0.0)
    shutil.copytree(tables.directory, tmp_path / "live")
    local, root, rows = Tables(tmp_path / "live"), place(proxy, "live"), Rows(cluster_id="id-0", cluster="c0")
    upload(local.directory, root)
    past, end = Past(root), START + 8 * MINUTE
    assert past.snapshot(START + MINUTE).clusters
    entries = proxy.counts["GET", "entry"]
    for isr in ([1, 2, 4], [1]):
        local.commit(rows.cluster_row(end), rows.partition("orders", 0, rows.state([1, 2, 4], isr, 1), end))
        upload(local.directory, root)
        assert of_moment(past.snapshot(end)) == of_moment(Past(local.directory).snapshot(end))
        assert past.previous(end + 1) == end
    assert proxy.counts["GET", "entry"] - entries <= 2 * READS_OF_A_COMMIT, "not those of older versions"
    other = Tables(tmp_path / "other")
    for second in range(9):  # as many versions, of another history
        other.commit(rows.cluster_row(START + second * SECOND), rows.broker(7, START + second * SECOND))
    for name in [file.relative_to(local.directory) for file in local.directory.rglob("*") if file.is_file()]:
        delete(root / str(name))
    upload(other.directory, root)
    at = START + 5 * SECOND
    assert of_moment(past.snapshot(at)) == of_moment(Past(other.directory).snapshot(at))
