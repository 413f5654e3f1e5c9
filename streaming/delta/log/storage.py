"""The tables and their data files. delta-rs and Spark are given a table's folder.

With ``table_log`` the only module that opens, lists or deletes files of the tables: local folders today; for tables in
an object store only these two change. Depends on paths, on no row and no column. ``tests/test_house.py`` checks that no
other module reads these files.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.errors import ConfigurationError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ROWS_AT_ONCE: Final = 16_384
_FILE_OF_OBJECT: Final = re.compile(r'path: "([^"]*)"')


def is_table(path: Path) -> bool:
    """Return whether a folder holds a Delta table.

    Raises:
        PermissionError: this user may not look into it; delta-rs says that there is none.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        (path / "_delta_log").stat()
    return bool(DeltaTable.is_deltatable(str(path)))


def open_table(path: Path, version: int | None = None) -> DeltaTable | None:
    """Open a table, at its newest version unless another one is given; None where there is none.

    Raises:
        TableUnreadable: its log is damaged.
    """
    with reading(str(path)):
        return DeltaTable(str(path), version=version) if is_table(path) else None


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Turn the errors with which delta-rs, Arrow, JSON and the system refuse a file into one sentence.

    A file that is missing is left to the caller, who may have looked for it: ``FileNotFoundError`` passes.

    Raises:
        TableUnreadable: a file of it cannot be read. Not retried by itself: the caller may, files can come back.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise TableUnreadable(
            f"cannot read the table {table.removeprefix('file://')}: {error.strerror}; run this as a user who may read "
            f"{error.filename}"
        ) from error
    except (DeltaError, pa.ArrowException, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise TableUnreadable(
            f"cannot read the table {table.removeprefix('file://')}: {_first_sentence(error)}; repair the file, or "
            "bring back the whole folder of the tables from one copy"
        ) from error


def _first_sentence(error: Exception) -> str:
    """Return what an error says first: below it stands a stack of delta-rs, behind it the insides of its objects."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    sentence, is_object, insides = text.partition(" {")
    return f"{sentence} {' and '.join(_FILE_OF_OBJECT.findall(insides))}" if is_object else text


def make_folder(path: Path) -> None:
    """Create the folder of a table.

    Raises:
        ConfigurationError: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the tables below {path}: {error.strerror}; point tables.directory (--tables) at a folder "
            "that can be written"
        ) from None


def read_file(path: Path, file: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one data file of a table, by its name in the log; ``columns``: only these.

    Raises:
        FileNotFoundError: it was deleted.
        TableUnreadable: it is damaged.
    """
    with reading(str(path)):
        return pq.ParquetFile(file_path(path, file)).read(None if columns is None else list(columns))


def read_versions(path: Path, file: str, after: int, upto: int) -> pa.Table:
    """Read the rows of one data file whose ``version`` lies in ``(after, upto]``.

    Piece by piece: a compacted file holds weeks, a reader wants the last commits, and decoded it is twenty times as
    large.

    Raises:
        FileNotFoundError: it was deleted.
        TableUnreadable: it is damaged.
    """
    with reading(str(path)), pq.ParquetFile(file_path(path, file)) as parquet:
        pieces = parquet.iter_batches(_ROWS_AT_ONCE)
        return pa.Table.from_batches((_of_versions(piece, after, upto) for piece in pieces), parquet.schema_arrow)


def _of_versions(rows: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    bounds = pc.min_max(rows["version"]).as_py()
    if bounds["min"] > after and bounds["max"] <= upto:
        return rows
    return rows.filter(pc.and_(pc.greater(rows["version"], after), pc.less_equal(rows["version"], upto)))


def file_path(path: Path, file: str) -> str:
    """Return the path of a data file by its name in the log, which is URL-encoded."""
    return str(path / unquote(file))


def path_of(table: DeltaTable) -> Path:
    """Return the folder of a table."""
    return Path(url2pathname(urlsplit(table.table_uri).path))


def _files_of_version(table: DeltaTable) -> list[str]:
    """List the paths of the data files of a version."""
    return [file_path(path_of(table), name) for name in table.get_add_actions()["path"].to_pylist()]


def has_all_files(table: DeltaTable) -> bool:
    """Return whether the data files of a version are still there."""
    return all(Path(file).exists() for file in _files_of_version(table))


def wrong_files(table: DeltaTable) -> list[str]:
    """List the data files of a version that are missing, or of another size than its log says.

    Raises:
        TableUnreadable: its log is damaged.
    """
    path = path_of(table)
    with reading(str(path)):
        files = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
        return [file["path"] for file in files if _size(path / unquote(file["path"])) != file["size_bytes"]]


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def set_aside(path: Path) -> Path:
    """Rename the folder of a table, so that there is none; return where it is now. One that lay there is deleted."""
    aside = path.with_name(f"{path.name}.ahead")
    shutil.rmtree(aside, ignore_errors=True)
    return path.rename(aside)


def data_files(path: Path) -> set[str]:
    """List the data files that lie in the folder of a table, whether a version needs them or not."""
    names = {file.relative_to(path).as_posix() for file in path.rglob("*.parquet")}
    return {name for name in names if not name.startswith("_")}


def new_scratch(path: Path) -> Path:
    """Return a new folder within that of a table, which no reader looks into; the last one is deleted."""
    scratch = path / "_compaction"
    shutil.rmtree(scratch, ignore_errors=True)
    return scratch


def adopt_file(origin: Path, path: Path, name: str) -> None:
    """Move a data file from one table to another, under the same name."""
    (path / name).parent.mkdir(exist_ok=True)
    (origin / name).rename(path / name)


def delete_files(path: Path, names: Iterable[str]) -> None:
    """Delete data files of a table."""
    for name in names:
        (path / name).unlink(missing_ok=True)
