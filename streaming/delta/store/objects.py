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

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.delta.store.contract import ObjectStatus, StoreError
from streaming.delta.store.folders import LOCAL

if TYPE_CHECKING:
    from streaming.delta.store.contract import Store
    from streaming.delta.store.place import Place, Url

__all__ = ["ObjectStatus", "StoreError", "create", "delete", "get", "head", "names_below", "put"]


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
    """Return the client of a bucket or name service; a process has one, loaded where a store is asked for."""
    if root.text.startswith("hdfs://"):
        from streaming.delta.store.hdfs import Hdfs  # noqa: PLC0415 - 10 MB that folders do without

        return Hdfs(root)
    from streaming.delta.store.buckets import Bucket  # noqa: PLC0415 - the same

    return Bucket(root)
