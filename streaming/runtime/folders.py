"""Where files that can be fetched again live: the cache folder. Knows the environment and the disk only."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_folder() -> Path:
    """Give the folder for everything that can be fetched or built again.

    ``ISRWATCH_CACHE``, else ``XDG_CACHE_HOME/isrwatch``, else ``~/.cache/isrwatch``. It may not exist yet.
    """
    if own := os.environ.get("ISRWATCH_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "isrwatch"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder; the lock goes with its process, even a killed one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that a reader sees whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)
