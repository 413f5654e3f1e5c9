"""The six verbs of a store: create if absent, put, get, list, head, delete.

Only this module accesses the bytes of tables; all others build on it. Depends on places.
"""

# Theory of operation
#
# A Delta table needs little from its store: objects that appear whole or not at all, a listing that shows what was
# written, and one exclusive verb, with which exactly one of several writers of a name succeeds. Everything else (locks,
# renames, times of files) differs between stores, so nothing here needs it.
#
# In a folder each verb is a system call or three: a look at a log entry takes 2 microseconds, but 25 to 37 through the
# library for object stores, and the exporter looks hundreds of times a second. An exclusive create links a draft to its
# name: the link fails if the name exists, and readers never see a part of the object.
#
# In an object store, create is a PUT with If-None-Match. Not every server that accepts the header honours it
# (``exclusive``). In HDFS a created name is visible while it is still empty, so the object is written under a draft's
# name and renamed without overwriting, which the name node decides.
#
# A verb that raises may still have succeeded: the answer can be lost after the store has done its work. Callers that
# need to know must look (``log.writer``).
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
    """Read an object; ``FileNotFoundError`` if there is none."""
    store, name = _store(place)
    return store.get(name)


def names_below(place: Place) -> list[str]:
    """List the objects below a folder, as names within it, in order."""
    store, name = _store(place)
    return store.names(name)


def head(place: Place) -> ObjectStatus | None:
    """Return the status of an object; None if there is none."""
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
    """Return the client of a bucket or name service, loaded on first use."""
    if root.text.startswith("hdfs://"):
        from streaming.delta.store.hdfs import Hdfs  # noqa: PLC0415 - 10 MB that folders do without

        return Hdfs(root)
    from streaming.delta.store.buckets import Bucket  # noqa: PLC0415 - the same

    return Bucket(root)
