"""Flushing the tables to disk, and cutting them back after a power cut to what had certainly reached it."""

# Theory of operation
#
# A commit of Delta is a rename. After ``kill -9`` the kernel still completes it or never got it. After a power cut
# anything written since the last fsync may be gone, torn, or refer to something that is gone, in any order: a log entry
# may be whole while its data file is empty. An fsync in every commit would cost more than the commit. So the job
# flushes all tables once in a while, and relies on the copy that is already safe: the records on the bus.
#
# Each table has a mark, ``_flushed.json``: the version up to which it is certainly on the disk, and the boot of the
# machine in which the mark was written. So there are three kinds of data:
#   - up to the mark: on the disk, with everything that reading that version needs;
#   - after the mark: visible to readers, but a power cut may take it; the bus still has the records that it came from;
#   - on the bus only: not applied yet. Publishers wait for the disk themselves before a source may forget a record.
#
# A flush takes these steps:
#   1. It notes the newest version of each table, derived tables first. A derived table's version existed before the
#      version of the change log is looked up, so it follows from that one or an older one.
#   2. It flushes the bus (``first``): positions in the tables must not point past the end of a log.
#   3. Table by table in ``ORDER`` it syncs data files, log entries, checkpoints and folders, then replaces the mark: it
#      syncs a draft, renames it, and syncs the folder. A power cut in between leaves newer marks on the tables that
#      come first and older ones on the rest, which is harmless: the rest catches up.
#   4. Only after a successful flush may the job delete from the bus, and only what had been applied at the previous
#      round (``jobs.supervised``: ``delete_applied``), which step 1 of this round has included.
#
# After a power cut (``cut_unflushed``, before anything is opened): if the machine has booted since any mark was set, or
# a version after a mark is damaged, every table goes back to its mark. All or none: a table that kept unflushed
# versions would be ahead of others. A reboot alone is enough; after an orderly one there is nothing after the marks,
# since the job flushes when it stops. If one table cannot go back to its mark, nothing is cut: a program without marks
# has written the tables meanwhile. Derived tables are cut first, so a kill during the cut leaves none ahead.
#
# A derived table is written after the commit that it follows from, so it can be ahead of the change log in two cases
# only: the change log alone was restored from an older copy, or the change log was cut and the table has no mark yet.
# Then new versions of the change log will reuse the same numbers for other changes, so everything derived from the old
# ones must be removed: ``projections.rollback``, which runs next, cuts each such table to its newest version that is
# not ahead, or sets it aside to be derived from the beginning. ``mark_again`` moves its mark back with it, since a mark
# after the end of a table means lost data.
#
# Invariants
#   1. The version of a mark, and everything that reading it needs, is on the disk. Maintenance keeps it: it expires
#      only log entries before the mark, and no file that a remaining entry names (``log.maintenance``:
#      ``expire_log``, ``sweep``).
#   2. At their marks no table is ahead of one that it follows from. tests/jobs/shards/test_power_cut.py.
#   3. The bus keeps every record that no mark covers. tests/jobs/test_application.py.
#   4. A mark names only a version that was whole when it was flushed (``_written_since``), and a table that ends before
#      its mark is an error for the user: no power cut explains it.
#   5. After a cut the tables are as if the power had failed at the flush; the job reads the rest from the bus again
#      with the same result. tests/jobs/shards/test_power_cut.py.
#   6. A kill and a restart within one boot cut nothing. tests/jobs/shards/test_power_cut.py.

from __future__ import annotations

import errno
import json
import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.sample_tables import SAMPLE_TABLES
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE, SAMPLED_CONDITIONS, SOURCE_PROGRESS, TABLES
from streaming.delta.log.storage import (
    has_all_files,
    in_turn,
    is_table,
    make_folder,
    open_table,
    reading,
    set_aside,
    sole_writer,
    writing,
)
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
_FIRST: Final = (
    QUARANTINE.name,
    PARTITION_CHANGES.name,
    SAMPLED_CONDITIONS.name,
    *(table.name for table in SAMPLE_TABLES),
)
ORDER: Final = (
    *_FIRST,
    *(name for name in TABLES if name not in {*_FIRST, SOURCE_PROGRESS.name}),
    SOURCE_PROGRESS.name,
)
"""All tables, each after those that it follows from, and the quarantine before the positions of its records.

The last table says how far samples were applied: at the marks their tables have at least that much. So have the spells
that samples show of what the tables of these have: they may be ahead, and never behind.
"""


class Mark(NamedTuple):
    """Version up to which a table was flushed, and the boot of the machine at the time; None if that is unknown."""

    version: int
    boot: str | None


def flush(directory: Place, first: Callable[[], object] = lambda: None) -> None:
    """Flush the tables below a directory in their present state, and before a mark is moved the bus, by ``first``.

    Raises:
        OSError: the disk refuses; the marks stay where they are.
        TableUnreadable: a table lacks files that it has committed.
    """
    if not isinstance(directory, Path):  # a store has flushed what it confirms
        first()
        return
    with in_turn(directory, _TURN):
        with reading(str(directory)):
            tables = [directory / name for name in ORDER if is_table(directory / name)]
            newest = {path: newest_version(path) for path in reversed(tables)}
        first()
        with reading(str(directory)):
            for path in tables:
                before = read_mark(path)
                if before is None or (newest[path], boot()) != before:
                    _flush_table(path, before, newest[path])


def cut_unflushed(directory: Place, queries: Collection[str] = ()) -> dict[str, int]:
    """Cut the tables back to their marks if there was a power cut since; called before any of them is opened.

    Return the number of versions that were cut, by table. None of the queries that may write them may be running.

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
    """Hold the lock for flushing or cutting the tables below a directory; disk errors become one sentence."""
    make_folder(directory)
    with ExitStack() as turn, writing(str(directory)):
        if isinstance(directory, Path):
            turn.enter_context(in_turn(directory, _TURN))
        yield


def _cut(marks: dict[Path, Mark]) -> None:
    """Cut tables back, derived ones first, so that a kill leaves none ahead of another."""
    for path, mark in reversed(marks.items()):
        delete_log_after(path, mark.version)
    for path, mark in marks.items():
        _flush_table(path, mark, mark.version)


def _can_go_back_to(path: Path, version: int) -> bool:
    """Return whether a version can be read, after deleting a hint or checkpoint that may be torn."""
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
    """Rename a table that was never flushed and whose only version is damaged: it is still empty."""
    if read_mark(path) is None and newest_version(path) == 0 and not is_whole(path, 0):
        set_aside(path)


def _may_lack_something(path: Path, mark: Mark, newest: int) -> bool:
    return mark.boot != boot() or not all(is_whole(path, version) for version in range(mark.version + 1, newest + 1))


def mark_again(path: Place, version: int) -> None:
    """Flush a table that was cut back to a version, and move its mark back there if it is later."""
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
    """Read the mark of a table, None if there is none; ``TableUnreadable`` if it is damaged."""
    with suppress(FileNotFoundError), reading(str(path)):
        mark = json.loads((path / _MARK).read_text(encoding="utf-8"))
        return Mark(mark["version"], mark["boot"])
    return None


def boot() -> str | None:
    """Return the id of this boot of the machine; None if the system has none."""
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
    """Yield the files that the versions in ``(after, upto]`` have written, and checkpoints from ``after`` on.

    The checkpoint of ``after`` may be newer than its mark: it is written after its version is visible.

    Raises:
        TableUnreadable: a version is not whole.
    """
    yield from log_files(path, after)
    for version in range(after + 1, upto + 1):
        if not is_whole(path, version):
            raise TableUnreadable(f"the table {path} lacks what its version {version} has committed")
        yield from written_by(path, version)


def _write_mark(path: Path, mark: Mark) -> None:
    """Replace a mark, so that a power cut leaves the old one or the new one."""
    draft = path / f"{_MARK}.draft"
    draft.write_text(json.dumps(mark._asdict()), encoding="utf-8")
    _sync(draft)
    draft.replace(path / _MARK)
    _sync(path)


def _sync(file: Path) -> None:
    """Sync a file or folder to disk; ignore one that was deleted meanwhile."""
    with suppress(FileNotFoundError):
        opened = os.open(file, os.O_RDONLY)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in _NO_FOLDERS or not file.is_dir():
                raise
        finally:
            os.close(opened)
