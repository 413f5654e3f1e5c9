"""Steps from one layout to the next: whom they refuse, what a crash within one leaves, and two of them at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.contracts.columns import Column, Table, required
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS, TABLES
from streaming.delta import layout_2, layouts
from streaming.delta.change_rows import OF_COMMIT
from streaming.delta.definitions import LAYOUT_PROPERTY, STATISTICS_PROPERTY, arrow_schema, check_layout, layout_of
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.queries import query, read_all, select
from streaming.errors import TableRefused
from tests.delta.test_layouts import NEW, with_new_columns
from tests.plugins.old_layout import unpack

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Table(
    name="small",
    comment="A table of the tests",
    columns=(required("cluster", "string", "a name"), Column("partition", "int", "a number")),
    key=("cluster",),
)
SECOND = replace(FIRST, layout=2, columns=(*FIRST.columns, Column("rack", "string", "added by layout 2")))
THIRD = replace(SECOND, layout=3, columns=(*SECOND.columns, Column("hosts", "string[]", "added by layout 3")))


def small(directory: Path) -> DeltaTable:
    table = create_or_upgrade(directory, FIRST)
    write_deltalake(
        table, pa.Table.from_pylist([{"cluster": "main", "partition": 7}], arrow_schema(FIRST)), mode="append"
    )
    return table


def set_layout(path: Path, layout: int | str) -> int:
    """Say another layout, as a crash right before the last commit of a step leaves it; give the version."""
    table = DeltaTable(str(path))
    table.alter.set_table_properties({LAYOUT_PROPERTY: str(layout)}, raise_if_not_exists=False)
    return int(table.version())


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_newer_layout_is_refused_with_one_sentence_and_left_alone(tmp_path: Path, table: Table) -> None:
    create_or_upgrade(tmp_path, table)
    version = set_layout(tmp_path / table.name, table.layout + 1)

    with pytest.raises(TableRefused) as refused:
        create_or_upgrade(tmp_path, table)

    opened = DeltaTable(str(tmp_path / table.name))
    assert str(refused.value) == (
        f"{opened.table_uri} was written by a newer isrwatch "
        f"(layout {table.layout + 1}, this program reads {table.layout}); upgrade isrwatch"
    )
    assert (opened.version(), layout_of(opened)) == (version, table.layout + 1)


def test_a_table_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    write_deltalake(str(path), pa.table({"cluster": ["main"]}))

    with pytest.raises(TableRefused, match=r"is not a table of isrwatch; point tables.directory at another folder"):
        create_or_upgrade(tmp_path, PARTITION_CHANGES)

    assert DeltaTable(str(path)).version() == 0


def test_columns_of_another_table_are_refused_whatever_layout_it_says(tmp_path: Path) -> None:
    create_or_upgrade(tmp_path, FIRST)
    other = replace(FIRST, columns=(FIRST.columns[0], Column("partition", "long", "wider")))

    with pytest.raises(TableRefused, match=r"the columns of .* are not those of isrwatch's small"):
        create_or_upgrade(tmp_path, other)


def test_new_columns_come_step_by_step_and_rows_from_before_have_null(tmp_path: Path) -> None:
    small(tmp_path)

    upgraded = create_or_upgrade(tmp_path, THIRD)

    check_layout(upgraded, THIRD)
    assert layout_of(upgraded) == 3
    assert select(upgraded, THIRD).to_pylist() == [{"cluster": "main", "partition": 7, "rack": None, "hosts": None}]
    assert create_or_upgrade(tmp_path, THIRD).version() == upgraded.version(), "there is nothing left to do"
    with pytest.raises(TableRefused, match="layout 3, this program reads 1"):
        create_or_upgrade(tmp_path, FIRST)


@pytest.mark.parametrize("layout", [1, 2])
def test_a_step_that_a_crash_cut_before_its_last_commit_is_done_again(tmp_path: Path, layout: int) -> None:
    small(tmp_path)
    create_or_upgrade(tmp_path, THIRD)
    set_layout(tmp_path / "small", layout)

    again = create_or_upgrade(tmp_path, THIRD)

    check_layout(again, THIRD)
    assert select(again, THIRD).num_rows == 1


class Crash(Exception):
    """The process ends here."""


def crash(*_: object, **__: object) -> None:
    raise Crash


def content(directory: Path) -> dict[str, list[str]]:
    """All rows of the two tables that layout 2 writes anew, with what only they have; no time of an upgrade in them."""
    by_table: dict[str, list[str]] = {}
    for table in (PARTITION_CHANGES, REPLICATION_EVENTS):
        rows: list[dict[str, Any]] = select(DeltaTable(str(directory / table.name)), table).to_pylist()
        by_table[table.name] = sorted(map(repr, rows))
    return by_table


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What an upgrade that nothing disturbs makes of the tables of layout 1."""
    directory = tmp_path_factory.mktemp("undisturbed")
    unpack(directory)
    upgrade(directory / "tables")
    return content(directory / "tables")


def upgrade(tables: Path) -> None:
    for table in (PARTITION_CHANGES, REPLICATION_EVENTS):
        create_or_upgrade(tables, table)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    unpack(tmp_path)
    return tmp_path / "tables"


@pytest.mark.parametrize("table", [PARTITION_CHANGES, REPLICATION_EVENTS], ids=lambda table: table.name)
def test_layout_2_interrupted_before_it_wrote_the_rows_anew_is_done_again(
    old: Path, upgraded: dict[str, list[str]], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table is REPLICATION_EVENTS:
        create_or_upgrade(old, PARTITION_CHANGES)
    with monkeypatch.context() as killed:
        killed.setattr(layout_2, "write_deltalake", crash)
        with pytest.raises(Crash):
            create_or_upgrade(old, table)
    assert layout_of(DeltaTable(str(old / table.name))) == 1

    upgrade(old)

    assert content(old) == upgraded


@pytest.mark.parametrize("table", [PARTITION_CHANGES, REPLICATION_EVENTS], ids=lambda table: table.name)
def test_layout_2_interrupted_after_it_wrote_the_rows_anew_leaves_them_as_they_are(
    old: Path, upgraded: dict[str, list[str]], table: Table
) -> None:
    statistics = DeltaTable(str(old / table.name)).metadata().configuration.get(STATISTICS_PROPERTY)
    upgrade(old)
    cut = DeltaTable(str(old / table.name))
    before = {LAYOUT_PROPERTY: "1"} | ({} if statistics is None else {STATISTICS_PROPERTY: statistics})
    cut.alter.set_table_properties(before, raise_if_not_exists=False)
    files = set(cut.file_uris())
    with pytest.raises(TableRefused, match="layout 1 of an older isrwatch"):
        check_layout(cut, table)

    upgrade(old)

    again = DeltaTable(str(old / table.name))
    check_layout(again, table)
    assert set(again.file_uris()) == files
    assert "version" in again.metadata().configuration[STATISTICS_PROPERTY].split(",")
    assert content(old) == upgraded


@pytest.mark.parametrize("table", [PARTITION_CHANGES, REPLICATION_EVENTS], ids=lambda table: table.name)
def test_layout_1_goes_on_to_a_layout_that_has_more_columns(
    old: Path, upgraded: dict[str, list[str]], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table is REPLICATION_EVENTS:
        create_or_upgrade(old, PARTITION_CHANGES)
    later = with_new_columns(table)
    schema = arrow_schema(later)
    of_commit = [name for name in schema.names if name in OF_COMMIT]
    for name in ("_CHANGES", "UNCOMMITTED") if table is PARTITION_CHANGES else ("_EVENTS",):
        monkeypatch.setattr(layout_2, name, pa.schema([f for f in schema if name[0] == "_" or f.name not in of_commit]))

    opened = create_or_upgrade(old, later)

    assert {row[NEW.name] for row in select(opened, later).to_pylist()} == {None}
    assert sorted(map(repr, select(opened, table).to_pylist())) == upgraded[table.name]


def test_the_second_of_two_upgrades_at_once_is_refused_and_changes_nothing(
    old: Path, upgraded: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = PARTITION_CHANGES.name, 2
    plain = layouts._STEPS[key]

    def outrun(directory: Path, table: DeltaTable) -> None:
        monkeypatch.setitem(layouts._STEPS, key, plain)
        upgrade(directory)
        plain(directory, table)

    monkeypatch.setitem(layouts._STEPS, key, outrun)

    with pytest.raises(TableRefused, match=r"another job writes .*partition_changes.* while it is upgraded; stop it"):
        create_or_upgrade(old, PARTITION_CHANGES)

    assert content(old) == upgraded


def test_of_several_upgrades_by_new_columns_one_is_made_and_the_others_are_refused_or_find_it(tmp_path: Path) -> None:
    together = Barrier(4)

    def start(directory: Path) -> str:
        together.wait()
        try:
            return f"layout {layout_of(create_or_upgrade(directory, SECOND))}"
        except TableRefused as refused:
            return "refused" if "while it is upgraded" in str(refused) else str(refused)

    for number in range(8):
        directory = tmp_path / str(number)
        small(directory)
        with ThreadPoolExecutor(together.parties) as threads:
            outcomes = set(threads.map(start, [directory] * together.parties))

        table = DeltaTable(str(directory / "small"))
        assert outcomes <= {"layout 2", "refused"}
        assert "layout 2" in outcomes
        check_layout(table, SECOND)
        assert [field.name for field in table.schema().fields] == list(SECOND.column_names())
        assert read_all(table).num_rows == 1


def test_versions_of_layout_2_are_those_of_the_commits_that_the_log_still_has(old: Path) -> None:
    create_or_upgrade(old, PARTITION_CHANGES)

    table = DeltaTable(str(old / PARTITION_CHANGES.name))
    rows = query(table, "SELECT version, ordinal, count(*) AS rows FROM rows GROUP BY version, ordinal").to_pylist()

    assert {row["rows"] for row in rows} == {1}, "version and ordinal are an order"
