"""Locks of files, on file systems that have them and on those that do not. Depends on nothing of isrwatch.

A lock is of an open file and ends with its process, even a killed one (``flock``). NFS mounted without locks, Lustre
without ``-o flock`` and some file systems in user space have none, and say so with an error of its own.
"""

from __future__ import annotations

import errno
import fcntl
import tempfile
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})


class Lock(Enum):
    """Result of an attempt to take a lock."""

    HELD = "held"
    OF_ANOTHER = "of another process"
    NOT_THERE = "the file system has no locks"


def try_lock(file: int) -> Lock:
    """Take the lock of an open file, without waiting.

    Raises:
        OSError: the file system fails.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.OF_ANOTHER
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return Lock.NOT_THERE
        raise
    return Lock.HELD


def lock(file: int) -> Lock:
    """Take the lock of an open file; wait while another process holds it.

    Raises:
        OSError: the file system fails.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return Lock.NOT_THERE
        raise
    return Lock.HELD


def has_locks(folder: Path) -> bool:
    """Return whether the file system of a folder has locks, by a file without a name that is gone at once.

    Raises:
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        return try_lock(file.fileno()) is not Lock.NOT_THERE
