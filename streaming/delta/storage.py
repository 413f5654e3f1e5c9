"""The only module that opens, lists or deletes files of the tables; delta-rs and Spark are given a table's folder.

Local folders today: for tables in an object store only this module changes. Depends on paths and the entries of Delta's
log, on no row and no column. ``tests/test_house.py`` checks that no other module reads these files.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.errors import ConfigurationError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FILE_OF_OBJECT: Final = re.compile(r'path: "([^"]*)"')
_NO_VERSION: Final = 1 << 62
BEFORE_FIRST: Final = -1
"""The version before the first one; also that of a table that does not exist yet."""


def is_table(path: Path) -> bool:
    """Return whether a folder holds a Delta table."""
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
    """Turn the errors with which delta-rs, Arrow and JSON refuse a damaged or missing file into one sentence.

    Args:
        table: where it is, for the sentence.

    Raises:
        TableUnreadable: a file of it cannot be read. Not retried by itself: the caller may, files can come back.
    """
    try:
        yield
    except (DeltaError, pa.ArrowException, json.JSONDecodeError, UnicodeDecodeError) as error:
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


def has_moved(path: Path, version: int) -> bool:
    """Return whether a table has another version than the one that was read; cheap, it looks up two file names."""
    if version == BEFORE_FIRST:
        return _entry(path, 0).exists() or newest_version(path) > BEFORE_FIRST
    return _entry(path, version + 1).exists() or not _entry(path, version).exists()


def newest_version(path: Path) -> int:
    """Return the newest version of a table by the names in its log; ``BEFORE_FIRST`` where there is none."""
    return max((version for _, version in log_entries(path) if version is not None), default=BEFORE_FIRST)


def identity_of(path: Path, version: int) -> tuple[int, int] | None:
    """Return what distinguishes a log entry from a recreated one of the same version; None while there is none."""
    try:
        status = _entry(path, version).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def committed_after(path: Path, version: int, moment: float) -> bool:
    """Return whether a version was committed after a moment, in seconds since 1970."""
    try:
        return _entry(path, version).stat().st_mtime > moment
    except FileNotFoundError:
        return False


def read_file(path: Path, file: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one data file of a table, by its name in the log; ``columns``: only these.

    Raises:
        FileNotFoundError: it was deleted.
        TableUnreadable: it is damaged.
    """
    with reading(str(path)):
        return pq.ParquetFile(file_path(path, file)).read(None if columns is None else list(columns))


def file_path(path: Path, file: str) -> str:
    """Return the path of a data file by its name in the log, which is URL-encoded."""
    return str(path / unquote(file))


def committed_at(path: Path, version: int, actions: Iterable[dict[str, Any]]) -> int:
    """Return when a version was committed, UTC microseconds; if the commit has no time, when its file was written."""
    for action in actions:
        if "timestamp" in action.get("commitInfo", {}):
            return int(action["commitInfo"]["timestamp"]) * 1000
    return _entry(path, version).stat().st_mtime_ns // 1000


def log_entries(path: Path) -> Iterator[tuple[Path, int | None]]:
    """List the files of a table's log with the version of those that are entries; None for all others."""
    with suppress(FileNotFoundError):
        for file in (path / "_delta_log").iterdir():
            yield file, int(file.stem) if file.suffix == ".json" and file.stem.isdecimal() else None


def path_of(table: DeltaTable) -> Path:
    """Return the folder of a table."""
    return Path(url2pathname(urlsplit(table.table_uri).path))


def has_entry(path: Path, version: int) -> bool:
    """Return whether a version has a log entry: it was committed, and has not expired."""
    return _entry(path, version).exists()


def actions_of(path: Path, version: int) -> list[dict[str, Any]]:
    """Read the actions of one log entry; none where it is empty or does not exist (any more).

    Raises:
        TableUnreadable: it is damaged.
    """
    with suppress(FileNotFoundError), reading(str(path)):
        entry = _entry(path, version).read_text(encoding="utf-8")
        return [json.loads(line) for line in entry.splitlines() if line]
    return []


def files_added(actions: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """List the files whose rows are new in a commit, each with its date, by date.

    Compaction adds no rows, and neither does a commit that replaces rows: it copies all other rows of the same files.
    """
    if any(action.get("remove", {}).get("dataChange") for action in actions):
        return []
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    return sorted(((file["path"], file["partitionValues"]["date"]) for file in added), key=lambda file: file[1])


def newest_checkpoint(path: Path) -> int | None:
    """Return the version of the checkpoint in ``_last_checkpoint``, where readers begin; None for none."""
    with suppress(FileNotFoundError), reading(str(path)):
        return int(json.loads((path / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8"))["version"])
    return None


def oldest_readable(path: Path) -> int:
    """Return the oldest version that can be read with every later one of the log.

    Whoever deleted older entries may have been killed on the way: single ones may be left, with gaps behind them.
    """
    entries = list(log_entries(path))
    versions = {version for _, version in entries if version is not None}
    begin = max(versions)
    while begin - 1 in versions:
        begin -= 1
    checkpoints = [_number(file) for file, _ in entries if ".checkpoint" in file.name]
    return max(begin, min((version for version in checkpoints if version >= begin - 1), default=0))


def delete_log_before(path: Path, version: int) -> dict[str, float]:
    """Delete the log entries before the newest checkpoint at or before a version; the checkpoint holds their result.

    Invariant: the log begins with a checkpoint or with version 0, so a reader never needs an entry that was deleted.

    Returns:
        The data files that the deleted entries removed from the table, with the time of it, in seconds since 1970.
    """
    entries = [(file, _number(file), version is not None) for file, version in log_entries(path)]
    checkpoints = [number for file, number, _ in entries if ".checkpoint" in file.name]
    version = min(version, newest_checkpoint(path) or 0)  # the one in _last_checkpoint stays
    begin = max((number for number in checkpoints if number <= version), default=0)
    removed: dict[str, float] = {}
    for file, number, is_entry in entries:
        if number < begin:
            removed.update(_removed_by(path, number) if is_entry else {})
            file.unlink(missing_ok=True)
    return removed


def delete_log_after(path: Path, version: int) -> None:
    """Delete the log entries and checkpoints behind a version, the newest first: the rest is a table at any moment."""
    entries = ((_number(file), file) for file, _ in log_entries(path))
    behind = sorted(each for each in entries if version < each[0] < _NO_VERSION)
    if behind:
        (path / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)  # may name one of them; readers find others
    for _, file in reversed(behind):
        file.unlink(missing_ok=True)


def log_files(path: Path, after: int) -> Iterator[Path]:
    """List the folder of the log, the entries and checkpoints of the versions after one, and what has no version."""
    yield path / "_delta_log"
    yield from (file for file, _ in log_entries(path) if _number(file) > after)


def is_whole(path: Path, version: int) -> bool:
    """Return whether a version has a log entry that can be read, and the data files that it added, whole."""
    try:
        actions = actions_of(path, version)
        added = [action["add"] for action in actions if "add" in action]
        return bool(actions) and all((path / unquote(each["path"])).stat().st_size == each["size"] for each in added)
    except (FileNotFoundError, TableUnreadable):
        return False


def written_by(path: Path, version: int) -> Iterator[Path]:
    """List the data files that a version added."""
    return (path / unquote(action["add"]["path"]) for action in actions_of(path, version) if "add" in action)


def _removed_by(path: Path, version: int) -> dict[str, float]:
    actions = actions_of(path, version)
    removed = [unquote(action["remove"]["path"]) for action in actions if "remove" in action]
    return dict.fromkeys(removed, _entry(path, version).stat().st_mtime) if removed else {}


def _number(file: Path) -> int:
    """Return the version in the name of a file of the log; a large number for files without one."""
    number = file.name.lstrip(".").split(".", 1)[0]  # ".N.json.crc" is Hadoop's
    return int(number) if number.isdecimal() else _NO_VERSION


def data_files(path: Path) -> set[str]:
    """List the data files that lie in the folder of a table, whether a version needs them or not."""
    names = {file.relative_to(path).as_posix() for file in path.rglob("*.parquet")}
    return {name for name in names if not name.startswith("_")}


def files_in_log(path: Path) -> set[str]:
    """List the files that were added or removed by the versions whose log entries are still there."""
    versions = [version for _, version in log_entries(path) if version is not None]
    actions = (action for version in versions for action in actions_of(path, version))
    return {unquote(action[kind]["path"]) for action in actions for kind in ("add", "remove") if kind in action}


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


def _entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"
