"""The part of the tables that has certainly reached the disk, and the part that a power cut may have taken."""

# Theory of operation
#
# A commit of Delta is a rename. After ``kill -9`` it is there or not: the kernel has it. After a power cut anything
# written since the last fsync may be gone, torn, or there without what it refers to, and in any order: the entry of the
# log may be whole while its data file is empty. An fsync in every commit would cost more than the commit. So the job
# flushes all tables once in a while, and relies on the one copy that is already safe: the records on the bus.
#
# Each table has a mark, ``_flushed.json``: the version up to which it is certainly on the disk, and the boot of the
# machine in which that was written. Three kinds of data follow from it:
#   - up to the mark: on the disk, all of it that reading that version needs;
#   - behind the mark: visible to readers, and perhaps gone tomorrow; the bus still has the records that it came from;
#   - on the bus only: not applied yet. Publishers wait for the disk themselves before a source may forget.
#
# Flushing, in this order:
#   1. The newest version of each table is noted, tables that follow from others first. The version of a derived table
#      was there before the version of the change log is looked up, so it follows from that one or an older one.
#   2. The bus is flushed (``first``): positions in the tables must not point behind the end of a log.
#   3. Table by table in ``ORDER``, data files, log entries, checkpoints and folders are synced, then the mark is
#      replaced by way of a draft that is synced, renamed and synced with its folder. A power cut in between leaves
#      marks that are newer in front and older behind, which is harmless: what is behind catches up.
#   4. Only a flush that succeeded lets the job delete from the bus, and then only what had been applied at the previous
#      round already (``jobs.supervised``: ``delete_applied``), which step 1 of this round has seen.
#
# After a power cut (``cut_unflushed``, before anything is opened): if the machine has booted since any mark was set, or
# a version behind a mark is damaged, every table goes back to its mark. All or none: a table that kept unflushed
# versions would be ahead of others. A reboot alone is enough; after an orderly one nothing is behind the marks, since
# the job flushes when it stops. Nothing is cut while one mark cannot be gone back to: a program that knows no marks has
# written the tables meanwhile. Tables that follow from others are cut first, so a kill within the cut leaves none
# ahead.
#
# A derived table is written after the commit that it follows from, so it can be ahead of the change log in two cases
# only: the change log alone was restored from an older copy, or the change log was cut and the table has no mark yet.
# Then the next versions of the change log will say something else under the same numbers, and everything derived from
# the old ones must go: ``projections.rollback``, which runs next, cuts each such table to its newest version that is
# not ahead, or sets it aside to be derived from the beginning. ``mark_again`` moves its mark back with it, since a mark
# behind the end of a table means lost data.
#
# Invariants
#   1. The version of a mark, and all that reading it needs, is on the disk. Maintenance keeps it: it expires log
#      entries only before the mark, and no file that a remaining entry names (``log.maintenance``: ``expire_log``,
#      ``sweep``).
#   2. At their marks no table is ahead of one that it follows from. tests/jobs/shards/test_power_cut.py.
#   3. The bus keeps every record that no mark covers. tests/jobs/test_application.py.
#   4. A mark never names a version that was not whole when it was flushed (``_written_since`` refuses it), and a table
#      that ends before its mark is an error for the user: no power cut explains it.
#   5. After a cut the tables hold what they would hold if the power had failed at the flush; the rest is read from the
#      bus again with the same result. tests/jobs/shards/test_power_cut.py.
#   6. A kill and a restart within one boot cut nothing. tests/jobs/shards/test_power_cut.py.

from __future__ import annotations

import errno
import json
import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.sample_tables import SAMPLE_TABLES
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE, SOURCE_PROGRESS, TABLES
from streaming.delta.log.storage import has_all_files, is_table, make_folder, open_table, reading, set_aside
from streaming.delta.log.table_lock import in_turn, sole_writer, writing
from streaming.delta.log.table_log import (
    delete_checkpoint,
    delete_log_after,
    forget_newest_checkpoint,
    is_whole,
    log_files,
    newest_version,
    written_by,
)
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from streaming.delta.store.place import Place

_MARK: Final = "_flushed.json"
_TURN: Final = "flush"
_NO_FOLDERS: Final = {errno.EINVAL, errno.ENOTSUP}
"""Errors of file systems that cannot flush a folder."""
_FIRST: Final = (QUARANTINE.name, PARTITION_CHANGES.name, *(table.name for table in SAMPLE_TABLES))
ORDER: Final = (
    *_FIRST,
    *(name for name in TABLES if name not in {*_FIRST, SOURCE_PROGRESS.name}),
    SOURCE_PROGRESS.name,
)
"""All tables, each behind those that it follows from. Refused records are written before the positions behind them.

The last one says how far samples were applied: at the marks all of their tables have at least that.
"""


class Mark(NamedTuple):
    """Up to which version a table was flushed, and in which boot of the machine; None where that is unknown."""

    # On the disk with all that it needs. Moves forward with each flush; back only with the table (``mark_again``).
    version: int
    # Of the flush that wrote the mark. Another one now means that what is behind the version may be gone.
    boot: str | None


def flush(directory: Place, first: Callable[[], object] = lambda: None) -> None:
    """Flush what the tables below a directory hold now.

    Args:
        directory: of the tables.
        first: flushes what the tables have read; called before a mark is moved.

    Raises:
        OSError: the disk refuses; the marks stay where they are.
        TableUnreadable: a table lacks what it has committed.
    """
    if not isinstance(directory, Path):  # what a store has confirmed is safe
        first()
        return
    with in_turn(directory, _TURN), reading(str(directory)):
        tables = [directory / name for name in ORDER if is_table(directory / name)]
        newest = {path: newest_version(path) for path in reversed(tables)}
        first()
        for path in tables:
            before = read_mark(path)
            if before is None or (newest[path], boot()) != before:
                _flush_table(path, before, newest[path])


def cut_unflushed(directory: Place, queries: Collection[str] = ()) -> dict[str, int]:
    """Cut the tables back to their marks if the power was cut since; before any of them is opened.

    It was if the machine has booted since a mark was set, or if a version behind a mark is damaged. Nothing is cut
    where a mark cannot be gone back to, because a program that knows no marks has written the tables meanwhile.

    Args:
        directory: of the tables.
        queries: all that may write them; none of them may be running.

    Returns:
        How many versions were cut, by table.

    Raises:
        TableUnreadable: a table lacks versions that had been flushed: no power cut explains that.
        TableRefused: tables must be cut, and another job writes some of them.
        IsrwatchError: the disk is full, or refuses.
    """
    if not isinstance(directory, Path):
        return {}
    with cutting(directory):
        marks = {directory / name: mark for name in ORDER if (mark := read_mark(directory / name)) is not None}
        newest = {path: newest_version(path) for path in marks}
        for path, mark in marks.items():
            if newest[path] < mark.version:
                raise TableUnreadable(
                    f"the table {path} ends with version {newest[path]}, but {mark.version} had been flushed to the "
                    "disk; bring back the whole folder of the tables from one copy"
                )
        for name in ORDER:
            _set_torn_beginning_aside(directory / name)
        if not any(_may_lack_something(path, mark, newest[path]) for path, mark in marks.items()):
            return {}
        with sole_writer(directory, queries):
            if all(_can_go_back_to(path, mark.version) for path, mark in marks.items()):
                _cut(marks)
                return {
                    path.name: newest[path] - mark.version for path, mark in marks.items() if newest[path] > mark[0]
                }
    return {}


@contextmanager
def cutting(directory: Place) -> Iterator[None]:
    """Wait for the turn to flush or cut the tables below a directory; errors of its disk are one sentence."""
    make_folder(directory)
    with ExitStack() as turn, writing(str(directory)):
        if isinstance(directory, Path):
            turn.enter_context(in_turn(directory, _TURN))
        yield


def _cut(marks: dict[Path, Mark]) -> None:
    """Cut tables back, those that follow from others first: after a kill within it none is ahead of another."""
    for path, mark in reversed(marks.items()):
        delete_log_after(path, mark.version)
    for path, mark in marks.items():
        _flush_table(path, mark, mark.version)


def _can_go_back_to(path: Path, version: int) -> bool:
    """Return whether a version can be read; its checkpoint may be torn, and the hint name one that is gone."""
    forget_newest_checkpoint(path)
    try:
        table = open_table(path, version)
    except TableUnreadable:
        delete_checkpoint(path, version)
        try:
            table = open_table(path, version)
        except TableUnreadable:
            return False
    return table is not None and has_all_files(path, table)


def _set_torn_beginning_aside(path: Path) -> None:
    """Rename a table that was never flushed, and whose one version is damaged: it holds nothing yet."""
    if read_mark(path) is None and newest_version(path) == 0 and not is_whole(path, 0):
        set_aside(path)


def _may_lack_something(path: Path, mark: Mark, newest: int) -> bool:
    return mark.boot != boot() or not all(is_whole(path, version) for version in range(mark.version + 1, newest + 1))


def mark_again(path: Place, version: int) -> None:
    """Flush a table that was cut back to a version, and move its mark there if it is behind that version."""
    if not isinstance(path, Path):
        return
    before = read_mark(path)
    if before is not None and before.version > version:
        _flush_table(path, Mark(version, before.boot), version)


def flushed_version(path: Place) -> int | None:
    """Return the version up to which a table was flushed; None if it never was."""
    mark = read_mark(path) if isinstance(path, Path) else None
    return None if mark is None else mark.version


def read_mark(path: Path) -> Mark | None:
    """Read the mark of a table; None where there is none.

    Raises:
        TableUnreadable: it is damaged.
    """
    with suppress(FileNotFoundError), reading(str(path)):
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
    folders = {path, path.parent, *(file.parent for file in files)}
    for each in (*files, *folders):
        _sync(each)
    _write_mark(path, Mark(upto, boot()))


def _everything(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file() and not file.name.startswith(_MARK))


def _written_since(path: Path, after: int, upto: int) -> Iterator[Path]:
    """Yield what the versions in ``(after, upto]`` have written, and checkpoints from ``after`` on.

    That of ``after`` may be younger than its mark: it is written after its version is visible.

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
        except OSError as error:
            if error.errno not in _NO_FOLDERS or not file.is_dir():
                raise
        finally:
            os.close(opened)
