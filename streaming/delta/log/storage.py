"""The tables and their data files, the errors of reading and writing them, and the lock of their only writer.

delta-rs and Spark get a table's folder. Only this module and ``table_log`` open, list or delete files of the tables,
which ``tests/test_house.py`` checks. Depends on places, on no row and no column.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from streaming import movement
from streaming.delta.store.objects import StoreError, delete, get, head, names_below, recall
from streaming.delta.store.place import options_of
from streaming.errors import OF_THE_DISK, ConfigurationError, IsrwatchError, TableRefused, TableUnreadable, sentence_of
from streaming.locks import Lock, lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.delta.store.place import Place


_ROWS_AT_ONCE: Final = 16_384
_CAUSED_BY: Final = "\x1b[31m↳\x1b[0m"
_FILE_OF_OBJECT: Final = re.compile(r'path: "([^"]*)"')


def is_table(path: Place) -> bool:
    """Return whether a place holds a Delta table.

    Raises:
        PermissionError: this user may not look into it; delta-rs would report that there is no table.
    """
    if not isinstance(path, Path):  # delta-rs would block every thread of this process until the store has answered
        return any(name.endswith((".json", ".parquet")) for name in names_below(path / "_delta_log"))
    with suppress(FileNotFoundError, NotADirectoryError):
        (path / "_delta_log").stat()
    return bool(DeltaTable.is_deltatable(str(path)))


def table_at(path: Place, version: int | None = None) -> DeltaTable:
    """Open an existing table, at its newest version unless another one is given; raises errors of delta-rs."""
    return DeltaTable(str(path), version=version, storage_options=options_of(path))


def open_table(path: Place, version: int | None = None) -> DeltaTable | None:
    """Open a table as :func:`table_at` does, None if there is none; ``TableUnreadable`` if its log is damaged."""
    with reading(str(path)):
        return table_at(path, version) if is_table(path) else None


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Turn errors of delta-rs, Arrow, JSON and the system into one sentence, except ``FileNotFoundError``.

    Raises:
        TableUnreadable: a file of the table cannot be read. The caller may try again: files can come back.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except StoreError as error:
        raise TableUnreadable(f"cannot read the table {table}: {error}") from error
    except PermissionError as error:
        raise TableUnreadable(
            f"cannot read the table {table.removeprefix('file://')}: {error.strerror}; run this as a user who may read "
            f"{error.filename}"
        ) from error
    except (DeltaError, pa.ArrowException, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        place = table.removeprefix("file://")
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise TableUnreadable(f"cannot read the table {place}: {sentence_of(error)}") from error
        fix = "repair the file, or bring back the whole folder of the tables from one copy"
        if "://" in place and isinstance(error, OSError):
            fix = "check that the store answers, and what the credentials of this process allow"
        raise TableUnreadable(f"cannot read the table {place}: {_first_sentence(error)}; {fix}") from error


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of an error, without the stack and the internals of delta-rs that follow."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # Below the last cause there may be the stack of Java.
    causes = [line.partition(_CAUSED_BY)[2].strip() for line in lines if _CAUSED_BY in line]
    text = f"{lines[0]}: {causes[-1]}" if causes else lines[0]
    sentence, is_object, insides = text.partition(" {")
    return f"{sentence} {' and '.join(_FILE_OF_OBJECT.findall(insides))}" if is_object else text


def make_folder(path: Place) -> None:
    """Create the folder of a table, which an object store does not need; ``ConfigurationError`` if that fails."""
    if not isinstance(path, Path):
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the tables below {path}: {error.strerror}; point tables.directory (--tables) at a folder "
            "that can be written"
        ) from None


def read_file(path: Place, file: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one data file of a table, by its name in the log; only some columns, if they are given.

    Raises:
        TableUnreadable: it is damaged or missing.
    """
    with reading(str(path)):
        rows = _parquet(path, file).read(None if columns is None else list(columns))
    movement.note()
    return rows


def read_versions(path: Place, file: str, after: int, upto: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows of one data file whose ``version`` is in ``(after, upto]``; ``columns``: only these.

    It reads piece by piece: a compacted file holds weeks of which a reader needs the last commits, and decoding makes
    it twenty times as large.

    Raises:
        TableUnreadable: it is damaged or missing.
    """
    with reading(str(path)), _parquet(path, file) as parquet:
        pieces = []
        for piece in parquet.iter_batches(_ROWS_AT_ONCE, columns=columns):
            pieces.append(_of_versions(piece, after, upto))
            movement.note()
        return pa.Table.from_batches(pieces, None if pieces else parquet.schema_arrow)


def _of_versions(rows: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    bounds = pc.min_max(rows["version"]).as_py()
    if bounds["min"] > after and bounds["max"] <= upto:
        return rows
    return rows.filter(pc.and_(pc.greater(rows["version"], after), pc.less_equal(rows["version"], upto)))


def _parquet(path: Place, file: str) -> pq.ParquetFile:
    place = file_place(path, file)
    try:
        source = str(place) if isinstance(place, Path) else pa.BufferReader(recall(place) or get(place))
        return pq.ParquetFile(source, page_checksum_verification=True)
    except FileNotFoundError:
        raise TableUnreadable(
            f"cannot read the table {path}: its data file {file} is missing; bring back the whole folder of the tables "
            "from one copy"
        ) from None


def in_schema(rows: pa.Table, schema: pa.Schema, partition: Mapping[str, str]) -> pa.Table:
    """Return rows of a data file in the schema of its table, or a part of it; what was added later is null.

    ``partition`` has values of columns that only a file that Spark has written has.
    """
    for name, value in partition.items():
        if name in schema.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value).cast(schema.field(name).type), rows.num_rows))
    if not all(field.name in rows.column_names and _has_fields(rows.schema, field) for field in schema):
        rows = pa.concat_tables([schema.empty_table(), rows], promote_options="permissive")
    rows = rows.select(schema.names)
    return rows if rows.schema.equals(schema, check_metadata=True) else rows.cast(schema)


def _has_fields(schema: pa.Schema, expected: pa.Field) -> bool:
    kind = schema.field(expected.name).type
    return not pa.types.is_struct(kind) or {each.name for each in kind} == {each.name for each in expected.type}


def content_of(path: Place, file: str) -> bytes:
    """Read one data file as it is stored; raises as :func:`read_file` does."""
    try:
        with reading(str(path)):
            return get(file_place(path, file))
    except FileNotFoundError:
        raise TableUnreadable(f"cannot read the table {path}: its data file {file} is missing") from None


def rows_in(content: bytes, path: Place, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a data file of a table that was read, and those of the columns that it has."""
    with reading(str(path)):
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        return file.read([name for name in columns if name in file.schema_arrow.names])


def file_place(path: Place, file: str) -> Place:
    """Return the place of a data file by its name in the log, which is URL-encoded."""
    return path / unquote(file)


def size_of(path: Place, file: str) -> int | None:
    """Return the size in bytes of a data file by its name in the log; None if it is missing."""
    status = head(file_place(path, file))
    return None if status is None else status.size


def has_all_files(path: Place, table: DeltaTable) -> bool:
    """Return whether all data files of a version exist."""
    return all(size_of(path, name) is not None for name in table.get_add_actions()["path"].to_pylist())


def wrong_files(path: Place, table: DeltaTable) -> list[str]:
    """List the data files of a version that are missing, or whose size differs from the log.

    Raises:
        TableUnreadable: its log is damaged.
    """
    with reading(str(path)):
        files = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
        return [file["path"] for file in files if size_of(path, file["path"]) != file["size_bytes"]]


def set_aside(path: Place) -> Place:
    """Remove a table; return where it is now. An earlier one there is deleted.

    A folder is renamed. In a store only the log is deleted, newest entry first: the next table sweeps the data files.
    """
    if not isinstance(path, Path):
        for name in reversed(names_below(path / "_delta_log")):
            delete(path / "_delta_log" / name)
        return path
    aside = path.with_name(f"{path.name}.ahead")
    shutil.rmtree(aside, ignore_errors=True)
    return path.rename(aside)


def data_files(path: Place) -> set[str]:
    """List the data files in the folder of a table, whether a version needs them or not."""
    return {name for name in names_below(path) if name.endswith(".parquet") and not name.startswith("_")}


def delete_files(path: Place, names: Iterable[str]) -> None:
    """Delete data files of a table."""
    for name in names:
        delete(path / name)


# The one process that may write the tables of a directory, and errors of its disk.


DISK_IS_FULL: Final = ("No space left on device", "Disk quota exceeded")


@contextmanager
def sole_writer(directory: Place, queries: Iterable[str]) -> Iterator[None]:
    """Hold the tables of some queries for this process; the system releases the locks when the process ends.

    A store or a file system without locks lets two in: then the one that commits second finds its version taken, and
    stops.

    Raises:
        ConfigurationError: the directory cannot be made.
        TableRefused: another process holds them.
    """
    make_folder(directory)
    with ExitStack() as held:
        if not isinstance(directory, Path):
            yield
            return
        for query in queries:
            if not _try_lock(held.enter_context(_opened(directory / f".{query}.lock"))):
                raise TableRefused(
                    f"another job writes the tables below {directory}; stop it first, or point tables.directory "
                    "(--tables) at another folder"
                )
        yield


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the tables below {path.parent}: {error.strerror}; point tables.directory (--tables) at a "
            "folder that can be written"
        ) from None


def _try_lock(file: IO[str]) -> bool:
    """Take a lock; return False if another process holds it.

    Without locks, or if the disk fails, the second writer finds its version taken, and stops.
    """
    with suppress(OSError):
        return try_lock(file.fileno()) is not Lock.OF_ANOTHER
    return True


@contextmanager
def in_turn(directory: Path, name: str) -> Iterator[None]:
    """Hold a named lock on a directory; wait while another process holds it."""
    with _opened(directory / f".{name}.lock") as file:
        with suppress(OSError):  # what is written next says what the disk lacks
            lock(file.fileno())
        yield


@contextmanager
def writing(table: str) -> Iterator[None]:
    """Turn errors of a full or failing disk into an ``IsrwatchError`` of one sentence."""
    try:
        yield
    except CommitFailedError:  # another writer; the caller reports it
        raise
    except StoreError as error:
        raise IsrwatchError(f"cannot write {table}: {error}") from error
    except (DeltaError, OSError) as error:
        if is_disk_full(error):
            raise IsrwatchError(
                f"the disk is full, {table} cannot be written; free space: what was applied stays, and the rest is "
                "read again"
            ) from error
        if isinstance(error, OSError):
            # One of delta-rs has no number, only a text of several lines.
            reason = f"{' '.join(str(error).split())}; repair its disk" if error.errno is None else sentence_of(error)
            raise IsrwatchError(f"cannot write {table}: {reason}") from error
        raise


def is_disk_full(error: object) -> bool:
    """Return whether an error's text, ours or Spark's, says that a disk is full."""
    return any(sign in str(error) for sign in DISK_IS_FULL)
