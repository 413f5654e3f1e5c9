"""Tables, a bus and a configuration of b3f2e02 (``tests/fixtures/b3f2e02``), and what b3f2e02 made of them.

Plain data in, plain data out: knows Delta and the packing of the fixture, no product code. A row is a dictionary as
JSON has it, without the fields that are null; moments are microseconds since 1970, days are ISO, bytes are Latin-1.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import lzma
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIXTURE = Path(__file__).parents[1] / "fixtures" / "b3f2e02"
CHANGES = "partition_changes"
# What a column of b3f2e02 is called now, at any depth of a row; empty while none was renamed.
RENAMED: Mapping[str, str] = {}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
Row = dict[str, Any]

# -------------------------------------------------------------------- what the fixture holds


def unpack(directory: Path, *, settled: bool = False) -> None:
    """Unpack the folders ``tables`` and ``bus`` below a directory, with the times of their files.

    Args:
        directory: where to; it may exist.
        settled: bring the derived tables up to the truth, as a clean stop does; else they are as a kill left them.
    """
    for name in ("tables", "bus", *(("settled",) if settled else ())):
        with tarfile.open(FIXTURE / f"{name}.tar.xz") as packed:
            packed.extractall(directory / ("tables" if name == "settled" else name), filter="data")


@cache
def facts() -> dict[str, Any]:
    """Give what was true when the job was killed.

    ``version`` of the truth, and the ``oldest_version`` in its log; ``true_of``: the version that each derived
    table had reached; ``logs``: by channel and source, the ``end`` on the bus and the position ``applied``; ``unread``:
    records by source; ``batches``: the ends by source up to which each batch read the rest; ``gaps`` of incidents, in
    seconds; ``columns`` and ``keys`` of each table; ``settings``: the configuration as it was read, and the defaults.
    """
    read_facts: dict[str, Any] = json.loads((FIXTURE / "facts.json").read_text(encoding="utf-8"))
    return read_facts


@cache
def changes() -> tuple[Row, ...]:
    """Give every change in the order in which it was committed: its ``version``, its ``index`` in it, its ``row``.

    Versions above ``facts()["version"]`` are those of the old program when it had read the bus to its end.
    """
    return tuple(_lines("changes"))


@cache
def tables(when: str) -> dict[str, list[Row]]:
    """Give the rows of every table but that of the changes: ``before`` the rest of the bus was read, or ``after``."""
    found: dict[str, list[Row]] = {name: [] for name in facts()["columns"] if name != CHANGES}
    for line in _lines(when):
        found[line["table"]].append(line["row"])
    return found


def _lines(name: str) -> Iterable[Any]:
    text = lzma.decompress((FIXTURE / f"{name}.jsonl.xz").read_bytes()).decode()
    return map(json.loads, text.splitlines())


# -------------------------------------------------------------------- what tables hold now


def raw(directory: Path, table: str) -> pa.Table:
    """Read every row of a table, with every column that it has."""
    return pa.table(QueryBuilder().register("t", DeltaTable(str(directory / table))).execute("select * from t"))


def read(directory: Path, table: str) -> list[Row]:
    """Read every row of a table, with the columns that b3f2e02 had, under their old names."""
    return old_rows(raw(directory, table), table)


def commits(path: Path, after_version: int) -> list[tuple[int, list[Row]]]:
    """Read from the log of the changes what each version after one added; those that added nothing are left out."""
    found = []
    for entry in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
        added = [it["add"] for it in actions if it.get("add", {}).get("dataChange")]
        added.sort(key=lambda file: file["partitionValues"]["date"])
        if added and int(entry.stem) > after_version:
            found.append((int(entry.stem), [row for file in added for row in rows_in(path, file)]))
    return found


def rows_in(path: Path, file: Mapping[str, Any]) -> list[Row]:
    """Read one file of the changes, in its order; its day is only in the log."""
    rows = pq.ParquetFile(path / unquote(file["path"])).read()
    day = pa.repeat(pa.scalar(dt.date.fromisoformat(file["partitionValues"]["date"])), rows.num_rows)
    return [row for row in old_rows(rows.append_column("date", day), CHANGES) if row]


def old_rows(rows: pa.Table, table: str) -> list[Row]:
    """Spell rows of Arrow as plain data, with the columns that b3f2e02 had, under their old names."""
    return [only(compact(row), facts()["columns"][table]) for row in rows.to_pylist()]


def only(row: Row, columns: Mapping[str, Any]) -> Row:
    """Leave of a row what columns name, at every depth."""
    kept: Row = {}
    for name, within in columns.items():
        value = row.get(RENAMED.get(name, name))
        if value is None:
            continue
        if within is not None:
            value = [only(each, within) for each in value] if isinstance(value, list) else only(value, within)
        kept[name] = value
    return kept


def without(rows: Iterable[Row], names: Iterable[str]) -> list[Row]:
    """Leave columns out, at the top of each row."""
    left_out = frozenset(names)
    return [{name: value for name, value in row.items() if name not in left_out} for row in rows]


def compact(value: Any) -> Any:
    """Spell a value of Arrow as JSON has it, without the fields that are null."""
    match value:
        case dict():
            return {name: compact(item) for name, item in sorted(value.items()) if item is not None}
        case list() | tuple():
            return [compact(item) for item in value]
        case bytes():
            return value.decode("latin-1")
        case dt.datetime():
            return (value - _EPOCH) // _MICROSECOND
        case dt.date():
            return value.isoformat()
        case _:
            return value


def differences(found: Iterable[Row], expected: Iterable[Row]) -> dict[str, list[str]]:
    """Name the first rows that are lacking and that are too many, each as often as it is; empty for none.

    Seconds are compared to the microsecond.
    """
    held, wanted = Counter(map(_text, found)), Counter(map(_text, expected))
    found_wrong = {"lacking": list((wanted - held).elements())[:3], "too many": list((held - wanted).elements())[:3]}
    return {name: rows for name, rows in found_wrong.items() if rows}


def _text(row: Row) -> str:
    return json.dumps(_rounded(row), sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


# -------------------------------------------------------------------- for the script that made the fixture


def write_lines(name: str, lines: Iterable[Any]) -> None:
    """Write a JSON document a line; the same lines give the same bytes."""
    text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in lines)
    (FIXTURE / f"{name}.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def archive(name: str, folder: Path, files: Iterable[Path] | None = None) -> None:
    """Pack what is in a folder, or some files of it, with names and times: upkeep looks at the times."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(folder.rglob("*") if files is None else files):
            tar.add(file, file.relative_to(folder).as_posix(), recursive=False, filter=_anonymous)
    (FIXTURE / f"{name}.tar.xz").write_bytes(lzma.compress(packed.getvalue(), preset=9))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
