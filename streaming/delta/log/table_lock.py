"""Lock of the one process that may write a directory's tables, and errors of its disk. Knows files."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from deltalake.exceptions import CommitFailedError, DeltaError

from streaming.delta.log.storage import make_folder
from streaming.delta.store.objects import StoreError
from streaming.errors import ConfigurationError, IsrwatchError, TableRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.delta.store.place import Place

DISK_IS_FULL: Final = ("No space left on device", "Disk quota exceeded")


@contextmanager
def sole_writer(directory: Place, queries: Iterable[str]) -> Iterator[None]:
    """Hold the tables of some queries for this process; the system releases the locks when the process ends.

    A store or a file system without locks lets two in: then the one that commits second finds its version taken, and
    stops.

    Raises:
        ConfigurationError: the directory cannot be made.
        TableRefused: another process holds them.
    """
    make_folder(directory)
    with ExitStack() as held:
        if not isinstance(directory, Path):
            yield
            return
        for query in queries:
            if not _try_lock(held.enter_context(_opened(directory / f".{query}.lock"))):
                raise TableRefused(
                    f"another job writes the tables below {directory}; stop it first, or point tables.directory "
                    "(--tables) at another folder"
                )
        yield


def _opened(lock: Path) -> IO[str]:
    try:
        return lock.open("a")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the tables below {lock.parent}: {error.strerror}; point tables.directory (--tables) at a "
            "folder that can be written"
        ) from None


def _try_lock(file: IO[str]) -> bool:
    """Take a lock; return False if another process holds it."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the second writer finds its version taken, and stops
        return True
    return True


@contextmanager
def in_turn(directory: Path, name: str) -> Iterator[None]:
    """Hold a named lock on a directory; wait while another process holds it."""
    with _opened(directory / f".{name}.lock") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


@contextmanager
def writing(table: str) -> Iterator[None]:
    """Turn errors of a full or failing disk into an ``IsrwatchError`` of one sentence."""
    try:
        yield
    except CommitFailedError:  # another writer; the caller reports it
        raise
    except StoreError as error:
        raise IsrwatchError(f"cannot write {table}: {error}") from error
    except (DeltaError, OSError) as error:
        if is_disk_full(error):
            raise IsrwatchError(
                f"the disk is full, {table} cannot be written; free space: what was applied stays, and the rest is "
                "read again"
            ) from error
        if isinstance(error, OSError):
            raise IsrwatchError(f"cannot write {table}: {' '.join(str(error).split())}; repair its disk") from error
        raise


def is_disk_full(error: object) -> bool:
    """Return whether an error's text, ours or Spark's, says that a disk is full."""
    return any(sign in str(error) for sign in DISK_IS_FULL)
