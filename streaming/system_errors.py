"""Errors of the operating system in one sentence, with the fix. Depends on nothing of isrwatch."""

from __future__ import annotations

import errno
from typing import Final

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
