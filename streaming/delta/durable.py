"""What of the tables has certainly reached the disk, and what a power cut may have taken with it.

A commit is not flushed when it is made, because that would cost more than the commit. The job flushes all tables once
in a while, and only then deletes from the bus what they hold. Each table has a mark, which names the newest flushed
version. After a power cut the start cuts every table back to its mark, and reads the rest from the bus again.

Invariants:

- The version of a mark, and all that reading it needs, is on the disk.
- At their marks no table is ahead of one that it follows from: tables are flushed in the order of ``ORDER``, each up to
  the version that it had before any table in front of it was looked at.
- Maintenance deletes nothing that the version of the mark needs, and the bus nothing that a mark does not cover.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.sample_tables import SAMPLE_TABLES
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE, SOURCE_PROGRESS, TABLES
from streaming.delta.storage import is_table, make_folder
from streaming.delta.table_lock import in_turn, writing
from streaming.delta.table_log import delete_log_after, is_whole, log_files, newest_version, written_by
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK: Final = "_flushed.json"
_TURN: Final = "flush"
_FIRST: Final = (QUARANTINE.name, PARTITION_CHANGES.name, *(table.name for table in SAMPLE_TABLES))
ORDER: Final = (
    *_FIRST,
    *(name for name in TABLES if name not in {*_FIRST, SOURCE_PROGRESS.name}),
    SOURCE_PROGRESS.name,
)
"""All tables, each behind those that it follows from. Refused records are written before the positions behind them."""


class Mark(NamedTuple):
    """Up to which version a table was flushed, and in which boot of the machine; None where that is unknown."""

    version: int
    boot: str | None


def flush(directory: Path) -> None:
    """Flush what the tables below a directory hold now.

    Raises:
        OSError: the disk refuses; the marks stay where they are.
        TableUnreadable: a table lacks what it has committed.
    """
    with in_turn(directory, _TURN):
        tables = [directory / name for name in ORDER if is_table(directory / name)]
        newest = {path: newest_version(path) for path in reversed(tables)}
        for path in tables:
            before = read_mark(path)
            if before is None or (newest[path], boot()) != before:
                _flush_table(path, before, newest[path])


def cut_unflushed(directory: Path) -> dict[str, int]:
    """Cut the tables back to their marks if the power was cut since; before any of them is opened.

    It was if the machine has booted since a mark was set, or if a version behind a mark is damaged.

    Returns:
        How many versions were cut, by table.

    Raises:
        TableUnreadable: a table lacks versions that had been flushed: no power cut explains that.
        IsrwatchError: the disk is full, or refuses.
    """
    make_folder(directory)
    cut: dict[str, int] = {}
    with in_turn(directory, _TURN), writing(str(directory)):
        marks = {directory / name: mark for name in ORDER if (mark := read_mark(directory / name)) is not None}
        newest = {path: newest_version(path) for path in marks}
        for path, mark in marks.items():
            if newest[path] < mark.version:
                raise TableUnreadable(
                    f"the table {path} ends with version {newest[path]}, but {mark.version} had been flushed to the "
                    "disk; bring back the whole folder of the tables from one copy"
                )
        if any(_may_lack_something(path, mark, newest[path]) for path, mark in marks.items()):
            for path, mark in marks.items():
                delete_log_after(path, mark.version)
                _flush_table(path, mark, mark.version)
                cut |= {path.name: newest[path] - mark.version} if newest[path] > mark.version else {}
    return cut


def _may_lack_something(path: Path, mark: Mark, newest: int) -> bool:
    return mark.boot != boot() or not all(is_whole(path, version) for version in range(mark.version + 1, newest + 1))


def mark_again(path: Path, version: int) -> None:
    """Flush a table that was cut back to a version, and move its mark there if it is behind that version."""
    before = read_mark(path)
    if before is not None and before.version > version:
        _flush_table(path, Mark(version, before.boot), version)


def flushed_version(path: Path) -> int | None:
    """Return the version up to which a table was flushed; None if it never was."""
    mark = read_mark(path)
    return None if mark is None else mark.version


def read_mark(path: Path) -> Mark | None:
    """Read the mark of a table; None where there is none."""
    with suppress(FileNotFoundError):
        mark = json.loads((path / _MARK).read_text(encoding="utf-8"))
        return Mark(mark["version"], mark["boot"])
    return None


def boot() -> str | None:
    """Return what distinguishes this boot of the machine from others; None where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return None


def _flush_table(path: Path, before: Mark | None, upto: int) -> None:
    files = set(_everything(path) if before is None else _written_since(path, before.version, upto))
    folders = {path, *(file.parent for file in files)}
    for each in (*files, *folders):
        _sync(each)
    _write_mark(path, Mark(upto, boot()))


def _everything(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file() and not file.name.startswith(_MARK))


def _written_since(path: Path, after: int, upto: int) -> Iterator[Path]:
    """Yield what the versions in ``(after, upto]`` have written, their checkpoints included.

    Raises:
        TableUnreadable: one of them is not whole.
    """
    yield from log_files(path, after)
    for version in range(after + 1, upto + 1):
        if not is_whole(path, version):
            raise TableUnreadable(f"the table {path} lacks what its version {version} has committed")
        yield from written_by(path, version)


def _write_mark(path: Path, mark: Mark) -> None:
    """Replace a mark: after a power cut there is the old one or the new one."""
    draft = path / f"{_MARK}.draft"
    draft.write_text(json.dumps(mark._asdict()), encoding="utf-8")
    _sync(draft)
    draft.replace(path / _MARK)
    _sync(path)


def _sync(file: Path) -> None:
    """Wait until a file or folder is on the disk; one that was deleted meanwhile need not be."""
    with suppress(FileNotFoundError):
        opened = os.open(file, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
