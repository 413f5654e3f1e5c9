"""The cache folder, for files that can be downloaded or built again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError, reason_of
from streaming.locks import lock
from streaming.settings import check_place

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_folder() -> Path:
    """Return the cache folder.

    ``ISRWATCH_CACHE``, else ``XDG_CACHE_HOME/isrwatch``, else ``~/.cache/isrwatch``. It may not exist yet.

    Raises:
        ConfigurationError: it is no path of this machine.
    """
    if own := os.environ.get("ISRWATCH_CACHE"):
        check_place("ISRWATCH_CACHE", own)
        return Path(own).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "isrwatch"
    try:
        return Path.home() / ".cache" / "isrwatch"
    except RuntimeError:  # HOME is not set, and the system does not know the uid
        sentence = f"uid {os.geteuid()} has no home folder: set ISRWATCH_CACHE to a folder for the cache"
        raise ConfigurationError(sentence) from None


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock a folder of the cache for this process; the kernel releases the lock with the process, even a killed one.

    Raises:
        ConfigurationError: the folder cannot be created or written.
    """
    with _reporting_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    with file:
        with _reporting_write_errors(folder):
            lock(file.fileno())  # without locks two processes may fetch a file twice; it is moved into place as a whole
        yield


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file of the cache atomically.

    Raises:
        ConfigurationError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with _reporting_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(path)


@contextmanager
def _reporting_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {reason_of(error)}; set ISRWATCH_CACHE to a writable folder"
        ) from None
