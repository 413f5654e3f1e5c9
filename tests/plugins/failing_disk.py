"""A disk that fails: chosen calls of the system end with an error below a folder, in this process.

What is tested stays real; that a call fails is all that is put in its place. Libraries that do not call the system
through Python (delta-rs, Arrow, Spark) do not notice.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "open": ((builtins, "open"), (io, "open"), (os, "open")),
    "flock": ((fcntl, "flock"),),
    **{each: ((os, each),) for each in ("write", "fsync", "mkdir", "scandir", "listdir", "stat", "unlink", "statvfs")},
}


def let_fail(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int, *calls: str) -> None:
    """Let calls end with an error, below a folder: by their path, or by the path of what is open."""

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(at: Any = ".", *rest: Any, **named: Any) -> Any:
            opened = at.fileno() if hasattr(at, "fileno") else at
            path = Path(f"/proc/self/fd/{opened}").readlink() if isinstance(opened, int) else Path(os.fsdecode(at))
            if path.is_relative_to(folder):
                raise OSError(number, os.strerror(number), *([] if isinstance(opened, int) else [str(path)]))
            return real(at, *rest, **named)

        return call

    for each in calls:
        for module, name in PLACES[each]:
            monkeypatch.setattr(module, name, failing(getattr(module, name)))


WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
FAILING = (errno.EIO, errno.ESTALE, errno.EROFS, errno.EDQUOT)
