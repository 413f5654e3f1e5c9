"""The log of a table: its entries and checkpoints, by version.

Only this module and ``storage`` access objects of the tables. Depends on places and the entries of Delta's log, on no
row and no column.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from streaming.delta.log.storage import reading, size_of
from streaming.delta.store.objects import delete, get, head, names_below, put, recall
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streaming.delta.store.place import Place

_LOG: Final = "_delta_log"
_HINT: Final = "_last_checkpoint"
_NO_VERSION: Final = 1 << 62
BEFORE_FIRST: Final = -1
"""The version before the first one; also that of a table that does not exist yet."""


def has_moved(path: Place, version: int) -> bool:
    """Return whether a table has another version than the one that was read; looks up two file names.

    Raises:
        TableUnreadable: this user may not look into it.
    """
    if version == BEFORE_FIRST:
        return has_entry(path, 0) or newest_version(path) > BEFORE_FIRST
    return has_entry(path, version + 1) or not has_entry(path, version)


def newest_version(path: Place) -> int:
    """Return the newest version of a table by the names in its log; ``BEFORE_FIRST`` if there is none."""
    return max((version for _, version in log_entries(path) if version is not None), default=BEFORE_FIRST)


def identity_of(path: Place, version: int) -> tuple[object, ...] | None:
    """Return the identity of a log entry, which differs once the entry is recreated; None if there is none.

    Raises:
        TableUnreadable: this user may not look into the table.
    """
    try:
        status = head(entry_of(path, version))
    except OSError:  # rare, so only here: an exporter calls this hundreds of times a second
        with reading(str(path)):
            raise
    return None if status is None else status.identity


class EntryFiles(NamedTuple):
    """Files of a log entry that this process has committed, at a time of its monotonic clock, for maintenance."""

    committed: float
    added: frozenset[str]
    removed: frozenset[str]

    @classmethod
    def of(cls, added: Iterable[str], removed: Iterable[str]) -> EntryFiles:
        """Take names as they are in the log; the entry was committed just now."""
        return cls(time.monotonic(), frozenset(map(unquote, added)), frozenset(map(unquote, removed)))

    def written(self, now: float) -> float:
        """Return when it was committed by the clock of the store, of which ``now`` is the present."""
        return now - (time.monotonic() - self.committed)


EntriesByVersion = dict[int, EntryFiles]
"""Entries that a writer need not read: it has made them."""


def written_at(path: Place, version: int) -> float | None:
    """Return when a version was committed, in seconds since 1970 by the clock of the store; None if it has expired."""
    status = head(entry_of(path, version))
    return None if status is None else status.modified_at


def committed_at(path: Place, version: int, actions: Iterable[dict[str, Any]]) -> int:
    """Return when a version was committed, in UTC microseconds; by the time of its entry if the commit has none."""
    for action in actions:
        if "timestamp" in action.get("commitInfo", {}):
            return int(action["commitInfo"]["timestamp"]) * 1000
    written = written_at(path, version)
    if written is None:
        raise FileNotFoundError(f"{path} has no entry of version {version}")
    return int(written * 1_000_000)


def log_entries(path: Place) -> Iterator[tuple[str, int | None]]:
    """List the names in a table's log, with the version if it is an entry, else None."""
    for name in names_below(path / _LOG):
        stem, _, suffix = name.partition(".")
        yield name, int(stem) if suffix == "json" and stem.isdecimal() else None


def has_entry(path: Place, version: int) -> bool:
    """Return whether a version has a log entry: it was committed, and has not expired.

    Raises:
        TableUnreadable: this user may not look into the table.
    """
    return identity_of(path, version) is not None


def actions_of(path: Place, version: int) -> list[dict[str, Any]]:
    """Read the actions of one log entry, none if it is empty or missing; ``TableUnreadable`` if it is damaged."""
    return entry_actions(path, version) or []


def entry_actions(path: Place, version: int) -> list[dict[str, Any]] | None:
    """Read as :func:`actions_of` does; None if there is no such entry. In a store that is a look and a read in one."""
    with suppress(FileNotFoundError), reading(str(path)):
        entry = (recall(entry_of(path, version)) or get(entry_of(path, version))).decode()
        return [json.loads(line) for line in entry.split("\n") if line]
    return None


def files_added(actions: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """List the files whose rows are new in a commit, each with its date, by date.

    Compaction adds no rows. Neither does a commit that replaces rows: it copies all other rows of the same files.
    """
    if any(action.get("remove", {}).get("dataChange") for action in actions):
        return []
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    return sorted(((file["path"], file["partitionValues"]["date"]) for file in added), key=lambda file: file[1])


def newest_checkpoint(path: Place) -> int | None:
    """Return the version in ``_last_checkpoint``, where readers begin; None for none, or a damaged one."""
    try:
        with reading(str(path)):
            content = get(path / _LOG / _HINT)
        return int(json.loads(content)["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # readers look for one themselves
        return None


def delete_log_before(
    path: Place, version: int, made: EntriesByVersion | None = None, now: float = 0.0
) -> dict[str, float]:
    """Delete the log entries before the newest checkpoint at or before a version, which contains their result.

    Return the data files that they removed from the table, and when, by the clock of the store. Entries that are
    ``made`` need not be read, and are taken out; ``now`` is of the same clock.

    Invariant: the log begins with a checkpoint or with version 0, so a reader never needs an entry that was deleted.
    """
    made = {} if made is None else made
    entries = [(name, _number(name), version is not None) for name, version in log_entries(path)]
    checkpoints = [number for name, number, _ in entries if ".checkpoint" in name]
    version = min(version, newest_checkpoint(path) or 0)  # the one in _last_checkpoint stays
    begin = max((number for number in checkpoints if number <= version), default=0)
    removed: dict[str, float] = {}
    for name, number, is_entry in entries:
        if number < begin:
            removed.update(_removed_by(path, number, made.pop(number, None), now) if is_entry else {})
            delete(path / _LOG / name)
    return removed


def read_log(path: Place, version: int) -> dict[str, bytes]:
    """Read the log files that a version is read from, by name: its newest checkpoint, and the entries after it.

    Raises:
        FileNotFoundError: one of them has expired meanwhile.
    """
    entries = [(name, _number(name), number is not None) for name, number in log_entries(path)]
    begin = max((number for name, number, _ in entries if ".checkpoint" in name and number <= version), default=0)
    return {
        name: get(path / _LOG / name)
        for name, number, is_entry in entries
        if begin <= number <= version and (is_entry or (".checkpoint" in name and number == begin))
    }


def write_log(path: Place, files: Mapping[str, bytes]) -> None:
    """Write log files that were read elsewhere, the newest entry last."""
    for name in sorted(files, key=lambda name: (".checkpoint" not in name, name)):
        put(path / _LOG / name, files[name])


def delete_log_after(path: Place, version: int) -> None:
    """Delete the log entries and checkpoints after a version, newest first, so that the rest is always a table."""
    forget_newest_checkpoint(path)
    entries = ((_number(name), name) for name, _ in log_entries(path))
    for _, name in sorted((each for each in entries if version < each[0] < _NO_VERSION), reverse=True):
        delete(path / _LOG / name)


def forget_newest_checkpoint(path: Place) -> None:
    """Delete the hint where readers begin, because its checkpoint may be gone; they then look for one."""
    delete(path / _LOG / _HINT)


def delete_checkpoint(path: Place, version: int) -> None:
    """Delete the checkpoint of a version, if older entries contain the same."""
    entries = [(_number(name), name) for name, _ in log_entries(path)]
    if any(number < version for number, _ in entries):
        for number, name in entries:
            if number == version and ".checkpoint" in name:
                delete(path / _LOG / name)


def log_files(path: Path, begin: int) -> Iterator[Path]:
    """List the folder of the log, its entries and checkpoints from a version on, and files without a version."""
    yield path / _LOG
    yield from (path / _LOG / name for name, _ in log_entries(path) if _number(name) >= begin)


def is_whole(path: Place, version: int) -> bool:
    """Return whether a version has a readable log entry, and all data files that it added at their full size."""
    try:
        actions = actions_of(path, version)
    except TableUnreadable:
        return False
    added = [action["add"] for action in actions if "add" in action]
    return bool(actions) and all(size_of(path, each["path"]) == each["size"] for each in added)


def written_by(path: Path, version: int) -> Iterator[Path]:
    """List the data files that a version added."""
    return (path / unquote(action["add"]["path"]) for action in actions_of(path, version) if "add" in action)


def _removed_by(path: Place, version: int, made: EntryFiles | None, now: float) -> dict[str, float]:
    if made is not None:
        return dict.fromkeys(made.removed, made.written(now))
    written = written_at(path, version)
    if written is None:  # another writer of the table may delete the same entry meanwhile
        return {}
    actions = actions_of(path, version)
    return {unquote(action["remove"]["path"]): written for action in actions if "remove" in action}


def _number(name: str) -> int:
    """Return the version in the name of a log file; ``_NO_VERSION`` if it has none."""
    number = name.lstrip(".").split(".", 1)[0]  # ".N.json.crc" is Hadoop's
    return int(number) if number.isdecimal() else _NO_VERSION


def files_in_log(path: Place, made: Mapping[int, EntryFiles]) -> set[str]:
    """List the files that were added or removed by the versions whose log entries are still there."""
    versions = {version for _, version in log_entries(path) if version is not None}
    actions = [action for version in versions - made.keys() for action in actions_of(path, version)]
    read = {unquote(action[kind]["path"]) for action in actions for kind in ("add", "remove") if kind in action}
    return read.union(*(made[version].added | made[version].removed for version in versions & made.keys()))


def log_objects(path: Place, version: int) -> tuple[Place, Place, Place]:
    """Return the places of the entry of a version, of its checkpoint, and of the hint that points readers at it."""
    return entry_of(path, version), path / f"{_LOG}/{version:020}.checkpoint.parquet", path / _LOG / _HINT


def entry_of(path: Place, version: int) -> Place:
    """Return the place of the log entry of a version."""
    return path / f"{_LOG}/{version:020}.json"
