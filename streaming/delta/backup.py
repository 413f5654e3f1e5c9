"""A backup of all tables, taken while a job writes them, and its way back."""

# Theory of operation
#
# The tables name versions of each other, and the job replaces their files all the time, so a copy of the folder, file
# by file, may have a log that names data files that it lacks, or a derived table that is ahead of the change log. A
# backup copies versions instead:
#
#   1. It looks up the newest version of each table, each before those that it follows from, as a flush does
#      (``log.durable``). So no table is ahead: the change log is at a version N, and everything else follows from N
#      or from an earlier version. That is the state after a power cut, from which readers and the job continue.
#   2. It reads what names the files of these versions: checkpoints and entries. They are small, and expire first.
#   3. It copies the data files, which never change. Within one file system that is a link: a backup takes a moment and
#      no room. Elsewhere it takes time, and maintenance may delete a file that a later version has replaced. Then there
#      is a later cut to be had, so it looks again; what was copied already is not copied twice.
#   4. It writes the logs, the change log last: tables without it are refused by readers and by the job, so a copy that
#      was interrupted cannot be taken for tables. Each log becomes one checkpoint and its entry. Entries before it
#      would name files that the backup does not have.
#   5. It checks that all files are there with the size that the log names, flushes them, and writes ``_backup.json``,
#      without which it is no backup.
#
# To restore is the same from the backup to a place without tables. The job continues at the positions that the tables
# have: it reads again from the bus what they lack, and records as missed what the bus holds no more.
#
# Invariants. tests/delta/test_backup.py
#   1. The tables of a backup are what a job has made of a prefix of the bus.
#   2. A backup that is interrupted at any moment is no backup, and cannot be restored or read.
#   3. What the job does to the original changes no byte of the backup, and the other way round.

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from streaming import movement
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.claim import EVERY_QUERY
from streaming.delta.log.durable import ORDER, flush
from streaming.delta.log.storage import (
    data_files,
    delete_files,
    file_place,
    open_table,
    reading,
    sole_writer,
    table_at,
    writing,
    wrong_files,
)
from streaming.delta.log.table_log import BEFORE_FIRST, delete_log_before, newest_version, read_log, write_log
from streaming.delta.store.objects import get, names_below, put, repeat
from streaming.delta.store.place import at_once
from streaming.errors import ConfigurationError, TableUnreadable

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from streaming.delta.store.place import Place

NAME: Final = "_backup.json"
TRIES: Final = 20
"""Cuts that are tried while maintenance deletes what was to be copied."""


class Copied(NamedTuple):
    """Numbers of tables and data files that were copied, and their bytes, at a version of ``partition_changes``."""

    tables: int
    files: int
    size: int
    version: int


class _Cut(NamedTuple):
    """One version of a table: its log, and the data files with their sizes, by their names in the log."""

    version: int
    log: dict[str, bytes]
    files: dict[str, int]


def back_up(tables: Place, target: Place, now: dt.datetime) -> Copied:
    """Copy all tables as they are at one commit, whether a job writes them or not.

    Raises:
        ConfigurationError: there are no tables, or the target is not empty.
        TableUnreadable: a table is damaged.
        IsrwatchError: the target cannot be written.
    """
    if isinstance(tables, Path) and isinstance(target, Path) and target.absolute().is_relative_to(tables.absolute()):
        raise ConfigurationError(f"{target} is within the folder of the tables; choose another place for the backup")
    with writing(str(target)):
        if names_below(target):
            raise ConfigurationError(f"{target} is not empty; choose a new folder for each backup")
    cuts = _copy(tables, target)
    versions = {name: cut.version for name, cut in cuts.items()}
    made = {"made_at": now.isoformat(timespec="seconds"), "of": str(tables), "versions": versions}
    with writing(str(target)):
        flush(target)
        put(target / NAME, json.dumps(made, indent=1).encode())
    return _copied(cuts)


def restore(backup: Place, tables: Place) -> Copied:
    """Copy a backup to a place without tables, which no job writes.

    Raises:
        ConfigurationError: it is no backup, or not a whole one, or there are tables already.
        TableRefused: a job runs there.
        TableUnreadable: a table of the backup is damaged.
        IsrwatchError: the tables cannot be written.
    """
    made_of = _versions(backup)
    with sole_writer(tables, EVERY_QUERY):
        if there := [name for name in ORDER if newest_version(tables / name) != BEFORE_FIRST]:
            raise ConfigurationError(
                f"there are tables in {tables} already ({', '.join(there)}); stop the job, and move them away first"
            )
        if lacking := [name for name, version in made_of.items() if newest_version(backup / name) < version]:
            raise ConfigurationError(f"the backup {backup} is not whole: it lacks what it had of {', '.join(lacking)}")
        cuts = _copy(backup, tables)
        with writing(str(tables)):
            flush(tables)
    return _copied(cuts)


def _versions(backup: Place) -> dict[str, int]:
    try:
        with reading(str(backup)):
            return {str(name): int(version) for name, version in json.loads(get(backup / NAME))["versions"].items()}
    except (FileNotFoundError, KeyError, TypeError, AttributeError, ValueError):
        raise ConfigurationError(
            f"there is no backup in {backup}, or it was interrupted before it was whole: {NAME} is missing or damaged; "
            "name the folder that isrwatch backup has written"
        ) from None


def _copy(source: Place, target: Place) -> dict[str, _Cut]:
    """Copy tables as they are at one commit; return it.

    Raises:
        TableUnreadable: a table lacks a file that its newest version names.
    """
    before: dict[str, int] | None = None
    done = set[tuple[str, str]]()
    for _ in range(TRIES):
        versions = _newest(source)
        try:
            cuts = dict(at_once(source, partial(_cut, source), versions.items()))
            _copy_files(source, target, cuts, done)
        except (FileNotFoundError, TableUnreadable) as error:  # maintenance has deleted it meanwhile, or it is lost
            if versions == before:
                raise _unreadable(source, error) from error
            before = versions
            continue
        with writing(str(target)):
            for name in sorted(cuts, key=PARTITION_CHANGES.name.__eq__):  # the change log last
                _write_table(target / name, cuts[name])
        return cuts
    raise TableUnreadable(
        f"the files of {source} are deleted faster than they can be copied: raise advanced.reader_time while a backup "
        "is taken, or take it to a disk of this machine"
    )


def _newest(source: Place) -> dict[str, int]:
    """Look up the newest version of each table, each before those that it follows from."""
    versions = {name: newest_version(source / name) for name in reversed(ORDER)}
    versions = {name: version for name, version in versions.items() if version != BEFORE_FIRST}
    if PARTITION_CHANGES.name not in versions:
        raise ConfigurationError(
            f"no tables in {source}; point tables.directory (--tables) at the folder of the tables"
        )
    return versions


def _cut(source: Place, at: tuple[str, int]) -> tuple[str, _Cut]:
    name, version = at
    log = read_log(source / name, version)
    opened = open_table(source / name, version)
    if opened is None:
        raise FileNotFoundError(f"{source / name} is gone")
    files = pa.table(opened.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return name, _Cut(version, log, {file["path"]: file["size_bytes"] for file in files})


def _copy_files(source: Place, target: Place, cuts: Mapping[str, _Cut], done: set[tuple[str, str]]) -> None:
    """Copy the data files that were not copied for an earlier cut."""

    def copy(file: tuple[str, str]) -> None:
        name, path = file
        repeat(file_place(source / name, path), file_place(target / name, path))
        done.add(file)
        movement.note()

    waits = source if not isinstance(source, Path) else target
    at_once(waits, copy, [(name, path) for name, cut in cuts.items() for path in cut.files if (name, path) not in done])


def _write_table(path: Place, cut: _Cut) -> None:
    """Write the log of a table whose data files are there, and delete those of an earlier cut."""
    delete_files(path, data_files(path) - {unquote(name) for name in cut.files})
    write_log(path, cut.log)
    table = table_at(path, cut.version)
    table.create_checkpoint()
    delete_log_before(path, cut.version)
    if wrong := wrong_files(path, table):
        raise TableUnreadable(f"the copy {path} lacks files, or they have another size: {', '.join(wrong)}; try again")


def _unreadable(source: Place, error: Exception) -> TableUnreadable:
    if isinstance(error, TableUnreadable):
        return error
    return TableUnreadable(f"a table below {source} lacks a file that its newest version names: {error}")


def _copied(cuts: Mapping[str, _Cut]) -> Copied:
    sizes = [size for cut in cuts.values() for size in cut.files.values()]
    return Copied(len(cuts), len(sizes), sum(sizes), cuts[PARTITION_CHANGES.name].version)
