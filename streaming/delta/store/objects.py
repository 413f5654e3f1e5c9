"""The six verbs of a store: create if absent, put, get, list, head, delete.

The only module that touches the bytes of a table; whatever is said of a table is built on these. Depends on places.
"""

# Theory of operation
#
# A Delta table needs little of what it lies in: objects that appear whole or not at all, a listing that shows what was
# written, and one exclusive verb, by which of several writers of one name exactly one succeeds. Everything else (locks,
# renames, times of files) differs between stores, so nothing here asks for it.
#
# Where the store is a folder, each verb is a system call or three: a look at a log entry takes 2 microseconds, by way
# of the library for object stores 25 to 37, and the exporter looks hundreds of times a second. An exclusive create is a
# draft that is linked to its name: the link fails where the name exists, and readers never see a part of it.
#
# In an object store, create is a PUT with If-None-Match; the store either has the name or has it not. Not every server
# that accepts the header keeps its promise (``exclusive``). In HDFS a created name is visible while it is still empty,
# so the object is written under a draft's name and renamed without overwriting, which the name node decides.
#
# A verb that fails has not necessarily failed: an answer can be lost after the store has done what it was asked. Who
# needs to know looks (``log.writer``).
#
# Invariants
#   1. ``create`` returns True to at most one caller of a name. tests/delta/store/test_exclusive.py.
#   2. ``get`` returns all that one ``create`` or ``put`` wrote, or raises. tests/delta/store/test_verbs.py.
#   3. ``head`` returns another identity after an object was replaced.

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.delta.store.place import Place, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRAFT: Final = ".draft"


class StoreError(OSError):
    """A store refused, or did not answer; one sentence says which and why."""


class ObjectStatus(NamedTuple):
    """Size, time and identity of an object, known without reading it.

    Attributes:
        size: in bytes.
        modified_at: seconds since 1970, by the clock of the store.
        identity: another one after the object was replaced.
    """

    size: int
    modified_at: float
    identity: tuple[object, ...]


class Store(Protocol):
    """The six verbs of one kind of store. Names are keys below the root of the store; errors are ``OSError``."""

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless the name exists; return whether this call did."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object, or replace it."""

    def get(self, name: str) -> bytes:
        """Read an object; ``FileNotFoundError`` where there is none."""

    def names(self, folder: str, after: str) -> list[str]:
        """List what lies below a folder, as names within it, in order, and only those behind ``after``."""

    def head(self, name: str) -> ObjectStatus | None:
        """Return the status of an object; None where there is none."""

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""


def create(place: Place, content: bytes) -> bool:
    """Write an object unless there is one; return whether this call did."""
    store, name = _store(place)
    return store.create(name, content)


def put(place: Place, content: bytes) -> None:
    """Write an object, or replace it."""
    store, name = _store(place)
    store.put(name, content)


def get(place: Place) -> bytes:
    """Read an object.

    Raises:
        FileNotFoundError: there is none.
    """
    store, name = _store(place)
    return store.get(name)


def names_below(place: Place, after: str = "") -> list[str]:
    """List the objects below a folder as names within it, in order; ``after``: only those behind this name."""
    store, name = _store(place)
    return store.names(name, after)


def head(place: Place) -> ObjectStatus | None:
    """Return the status of an object; None where there is none."""
    store, name = _store(place)
    return store.head(name)


def delete(place: Place) -> None:
    """Delete an object, if there is one."""
    store, name = _store(place)
    store.delete(name)


def _store(place: Place) -> tuple[Store, str]:
    return (LOCAL, str(place)) if isinstance(place, Path) else (_store_of(place.root), place.key)


@lru_cache(maxsize=16)
def _store_of(root: Url) -> Store:
    """Return the client of a bucket or name node. It is loaded here: who has local tables need not have it."""
    if root.text.startswith("hdfs://"):
        from streaming.delta.store.hdfs import Hdfs  # noqa: PLC0415 - see above

        return Hdfs(root)
    from streaming.delta.store.buckets import Bucket  # noqa: PLC0415 - see above

    return Bucket(root)


class _LocalFolders:
    """Folders of this machine; names are paths."""

    def create(self, name: str, content: bytes) -> bool:
        with _draft(name, content) as draft:
            try:
                os.link(draft, name)  # noqa: PTH - fails where the name exists
            except FileExistsError:
                return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with _draft(name, content) as draft:
            draft.replace(name)

    def get(self, name: str) -> bytes:
        return Path(name).read_bytes()

    def names(self, folder: str, after: str) -> list[str]:
        return sorted(name for name in _files_below(folder) if name > after)

    def head(self, name: str) -> ObjectStatus | None:
        try:
            status = os.stat(name)  # noqa: PTH116 - asked hundreds of times a second: a Path takes four times as long
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectStatus(status.st_size, status.st_mtime, (status.st_ino, status.st_mtime_ns))

    def delete(self, name: str) -> None:
        Path(name).unlink(missing_ok=True)


LOCAL: Final[Store] = _LocalFolders()


@contextmanager
def _draft(name: str, content: bytes) -> Iterator[Path]:
    """Write a file next to another one, under a name that no reader asks for, and delete it in the end."""
    draft = Path(name).with_name(f".{Path(name).name}.{secrets.token_hex(4)}{_DRAFT}")
    try:
        try:
            draft.write_bytes(content)
        except FileNotFoundError:
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(content)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _files_below(folder: str, above: str = "") -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path, f"{above}{entry.name}/")
            else:
                yield above + entry.name
