"""Where files that can be fetched again live: the cache folder. Knows the environment and the disk only."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError

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
    """Let one process at a time work in a folder of the cache; the lock goes with its process, even a killed one.

    Raises:
        ConfigurationError: the folder cannot be made or written.
    """
    with _blaming_the_cache(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file of the cache that a reader sees whole or not at all.

    Raises:
        ConfigurationError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with _blaming_the_cache(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(path)


@contextmanager
def _blaming_the_cache(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror}; name a folder that can be written in ISRWATCH_CACHE"
        ) from None
