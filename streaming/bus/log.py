"""One log that is open for writing: lock, recovery, segments, bytes. Knows frames, segments and the codec.

One process writes a log at a time. A segment that was closed by a crash is never written again: an incomplete frame at
its end is cut off (no reader passes one) and writing goes on in a new segment.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming.bus.frames import HEADER_BYTES, MAGIC, Damaged, Frame, parse
from streaming.bus.segments import Segment, segment_name, segments
from streaming.contracts.codec import decode
from streaming.errors import ConfigurationError, Quarantined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOCK: Final = ".lock"


class WritableLog:
    """One log that is open for writing. ``sequence`` is the number of its last observation.

    Raises:
        ConfigurationError: another process writes this log.
        OSError: the disk refuses; the log must be abandoned and opened anew.
    """

    def __init__(self, folder: Path, segment_bytes: int, *, fsync: bool) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._size = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        try:
            self._base, self.sequence = recover(folder)
            self._file = self._create()
        except OSError:
            os.close(self._lock)
            raise

    def append(self, data: bytes) -> None:
        """Write whole frames, in one piece."""
        if self._size >= self._segment_bytes:
            full, self._base, self._size = self._file, self._base + self._size, 0
            self._file = self._create()
            os.close(full)
        self._write(data)
        self._size += len(data)

    def close(self) -> None:
        """Let go of the log."""
        os.close(self._file)
        os.close(self._lock)

    def abandon(self) -> None:
        """Close after an error, leaving a log that ends with a whole frame where the disk still allows it.

        Whole frames stay: a reader may have passed them already.
        """
        with suppress(OSError):
            recover(self._folder)
        self.close()

    def _create(self) -> int:
        """Open the segment of the present base: a new one, or one that a crash has left empty."""
        file = os.open(self._folder / segment_name(self._base), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if self._fsync:
            _sync_folder(self._folder)
        return file

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        if self._fsync:
            os.fsync(self._file)


def recover(folder: Path) -> tuple[int, int]:
    """Bring a log into order after a crash.

    An incomplete frame at the end is cut off: it was never acknowledged, and no reader passes one. Anything else that
    is damaged stays to be reported, and one number is left out for it so that the gap shows.

    Returns:
        the position where writing goes on, and the number of the last observation.
    """
    found = segments(folder)
    if not found:
        return 0, 0
    newest = found[-1]
    data = newest.path.read_bytes()
    items, _ = parse(data, newest.base, closed=True)
    end = newest.base + len(data)
    if items and isinstance(items[-1], Damaged) and is_incomplete(items[-1].raw):
        end = items.pop().position
        os.truncate(newest.path, end - newest.base)
    return end, _last_sequence(items, found[:-1])


def is_incomplete(raw: bytes) -> bool:
    """Tell whether these last bytes of a file are the begin of a frame whose rest is missing."""
    if len(raw) < HEADER_BYTES:
        return MAGIC.startswith(raw[: len(MAGIC)])
    length = int.from_bytes(raw[len(MAGIC) : len(MAGIC) + 4])
    return raw.startswith(MAGIC) and HEADER_BYTES + length > len(raw)


def _last_sequence(items: Sequence[Frame | Damaged], older: Sequence[Segment]) -> int:
    """Find the number of the last observation; the newest segment may hold none yet."""
    behind = 0
    while True:
        for item in reversed(items):
            if isinstance(item, Damaged):
                behind = 1
                continue
            with suppress(Quarantined):
                return decode(item.payload).sequence + behind
        if not older:
            return behind
        last, older = older[-1], older[:-1]
        items = parse(last.path.read_bytes(), last.base, closed=True)[0]


def _locked(folder: Path) -> int:
    """Lock a log for this process; the lock goes with the process, even a killed one."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigurationError(
            f"another process already writes {folder}: stop it, or give this collector another name"
        ) from None
    return lock


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
