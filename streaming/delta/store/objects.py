"""The six verbs of a store: create if absent, put, get, list, head, delete.

Only this module accesses the bytes of tables; all others build on it. Depends on places.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Final

from streaming.delta.store.place import ObjectStatus, StoreError, Url
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.delta.store.place import Place, Store


__all__ = [
    "ObjectStatus", "StoreError", "create", "delete", "get", "head", "names_below", "prove_exclusive", "put", "repeat",
]  # fmt: skip


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
    forget(place)
    store, name = _store(place)
    store.delete(name)


def repeat(source: Place, target: Place) -> None:
    """Write an object that never changes at another place, too, in any store; ``FileNotFoundError`` if there is none.

    Within one file system both places name one file: it takes no room, and lasts until both are deleted.
    """
    if isinstance(source, Path) and isinstance(target, Path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            os.link(source, target)
        if target.exists():
            return
    put(target, get(source))


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


# Folders of this machine as a store.


_DRAFT: Final = ".draft"


class _LocalFolders:
    """Folders of this machine; names are paths."""

    def create(self, name: str, content: bytes) -> bool:
        with _draft(name, content) as draft:
            try:
                os.link(draft, name)  # fails where the name exists
            except FileExistsError:
                return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with _draft(name, content) as draft:
            draft.replace(name)

    def get(self, name: str) -> bytes:
        return Path(name).read_bytes()

    def names(self, folder: str) -> list[str]:
        return sorted(_files_below(folder))

    def head(self, name: str) -> ObjectStatus | None:
        try:
            status = os.stat(name)  # noqa: PTH116 - called hundreds of times a second: a Path takes four times as long
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectStatus(status.st_size, status.st_mtime, (status.st_ino, status.st_mtime_ns))

    def delete(self, name: str) -> None:
        Path(name).unlink(missing_ok=True)


LOCAL: Final[Store] = _LocalFolders()


@contextmanager
def _draft(name: str, content: bytes) -> Iterator[Path]:
    """Write a file next to another one, under a name that no reader looks for, and delete it in the end."""
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


# A race that checks whether create-if-absent is exclusive in a store, before it is trusted with tables.
#
# Two of five servers that speak S3 accept the header but let several writers win: each would believe that its commit
# was made, and all commits but one would be lost silently.


WRITERS: Final = 8
ROUNDS: Final = 20
BYTES: Final = 16 << 10
"""Size of what they write, as of the entry of a commit: a server may look at the name before it takes the content."""
_PATIENCE_SECONDS: Final = 60.0


def prove_exclusive(place: Place) -> None:
    """Let writers race for names below a place, and delete the names afterwards.

    Raises:
        ConfigurationError: several writers won, or the content is not the winner's.
        OSError: the store refuses, or does not answer.
    """
    folder, together = place / f"_race-{secrets.token_hex(8)}", Barrier(WRITERS)

    def race(writer: int, name: Place) -> bool:
        together.wait(_PATIENCE_SECONDS)
        return create(name, str(writer).encode().ljust(BYTES))

    with ThreadPoolExecutor(WRITERS) as writers:
        for number in range(ROUNDS):
            name = folder / str(number)
            try:
                outcomes = list(writers.map(race, range(WRITERS), [name] * WRITERS))
                winners = [writer for writer, has_won in enumerate(outcomes) if has_won]
                content = get(name).decode().rstrip()
            finally:
                delete(name)
            # If the answer to the winner was lost, its repeated request came second, and there is no winner.
            if len(winners) > 1 or (winners and content != str(winners[0])):
                raise ConfigurationError(
                    f"{place} is no store for tables: {len(winners)} of {WRITERS} writers of one name were told that "
                    "they had created it, so commits would be lost; point tables.directory (--tables) at a store that "
                    "keeps If-None-Match, as S3, Azure and Google Cloud Storage do"
                )


# Objects of a store that this process has written lately: they never change, so it need not request them again.
# The data files and the log entries of tables only; the queries of a job read what the others of them have committed.


KEPT_BYTES: Final = 16 << 20
LARGEST_BYTES: Final = 1 << 20

_contents: Final[OrderedDict[Url, bytes]] = OrderedDict()
_lock: Final = threading.Lock()


def remember(place: Place, content: bytes) -> None:
    """Keep what was written, unless it is large, or lies in a folder."""
    if not isinstance(place, Url) or len(content) > LARGEST_BYTES:
        return
    with _lock:
        _contents[place] = content
        _contents.move_to_end(place)
        while sum(map(len, _contents.values())) > KEPT_BYTES:
            _contents.popitem(last=False)


def recall(place: Place) -> bytes | None:
    """Return what this process has written; None if that is not known any more."""
    if not isinstance(place, Url):
        return None
    with _lock:
        return _contents.get(place)


def forget(place: Place) -> None:
    """Forget an object that is deleted."""
    if isinstance(place, Url):
        with _lock:
            _contents.pop(place, None)
