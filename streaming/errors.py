"""The errors for users, as a tree.

    IsrwatchError            base; the message is one sentence with the problem and the fix
    ├── ConfigurationError   a key, an option or a file is wrong: names the key and the fix
    ├── ConnectionRefused    a cluster cannot be reached or denies access: names the address or the permission
    ├── BusFull              the disk of the bus is full: publishing is tried again
    ├── BusReplaced          a log of the bus was removed while it was written: everything is published again
    ├── MissingTool          Java, a jar or a program is missing: names it and how to install it
    ├── TableRefused         a table is not ours, has another layout, or has another writer
    ├── TableUnreadable      a table's log or a data file is damaged or missing: names the table
    ├── UnsafeStop           a broker is not safe to stop, and the work was to begin only if it is: names the reason
    ├── NewerFormat          the bus holds records that only a newer program reads
    └── InvalidObservation   one observation cannot be parsed: carries the reason, never stops a stream

A violated invariant of isrwatch itself is not in this tree: it is an ``AssertionError`` and stops the program.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Final


class IsrwatchError(Exception):
    """Base of every error for the user.

    Attributes:
        exit_code: that of a command that ends with it.
        log: lines of a program that a command prints below the sentence.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: str = "", log: str = "") -> None:
        super().__init__(sentence)
        self.log = log


class ConfigurationError(IsrwatchError):
    """A configuration key or a command-line option is wrong."""

    exit_code = 2


class ConnectionRefused(IsrwatchError):
    """A cluster cannot be reached, or a permission is missing."""


class BusFull(IsrwatchError):
    """The disk of the bus is full: nothing is lost that can be published later."""


class BusReplaced(IsrwatchError):
    """A log of the bus was removed, or replaced, while it was written: what it had may be lost, unread."""


class MissingTool(IsrwatchError):
    """A program, a jar or an optional package that a command requires is not installed."""


class TableRefused(IsrwatchError):
    """The table belongs to another program, version or writer."""


class TableUnreadable(IsrwatchError):
    """A Delta table cannot be read: its log or a data file is damaged or missing."""


class UnsafeStop(IsrwatchError):
    """A broker may not be stopped now, or it is unknown; nothing was done. Exit code EX_TEMPFAIL: try again later."""

    exit_code = 75  # not 1, with which the command ends that was to run


class NewerFormat(IsrwatchError):
    """A record of the bus is of a newer format than this program reads; the record must wait for the newer program."""


class InvalidObservation(IsrwatchError):
    """Bytes that are not a valid observation; the message is the reason in the quarantine table."""


# Errors of the operating system in one sentence, with the fix.


_FIXES: Final = {
    errno.EACCES: "run isrwatch as a user who may use it",
    errno.EPERM: "run isrwatch as a user who may use it",
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EROFS: "mount its file system so that it can be written",
    errno.EIO: "its disk fails, and the kernel's log says how: repair it",
    errno.ESTALE: "mount its network file system again, then start isrwatch again",
    errno.ENOLCK: "mount its file system with locks",
    errno.ETIMEDOUT: "the server of its network file system does not respond",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the machine (fs.file-max)",
}
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk without space, which is made sooner or later."""
OF_THE_DISK: Final = frozenset({errno.EIO, errno.ESTALE, errno.EROFS, errno.ETIMEDOUT})
"""Errors of a disk or a file system as a whole, not of one file that is damaged or missing."""


def reason_of(error: OSError) -> str:
    """Return the words of the system, and the fix where the error has one.

    >>> reason_of(OSError(errno.ESTALE, "Stale file handle"))
    'Stale file handle: mount its network file system again, then start isrwatch again'
    """
    said = error.strerror or str(error) or type(error).__name__
    fix = _FIXES.get(error.errno or 0)
    return said if fix is None else f"{said}: {fix}"


def sentence_of(error: OSError) -> str:
    """Return the same with the file that it is about, if the system names one.

    >>> sentence_of(OSError(errno.EROFS, "Read-only file system", "/data/bus"))
    '/data/bus: Read-only file system: mount its file system so that it can be written'
    """
    files = " and ".join(str(each) for each in (error.filename, error.filename2) if each)
    return f"{files}: {reason_of(error)}" if files else reason_of(error)
