"""The metadata log of one controller as batches: its files, and nothing of what the model makes of the records."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from streaming.contracts.identifiers import Offset
from streaming.contracts.records import RecordBatch, UndecodableRecord
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, decode_batches, split

TOPIC_FOLDER: Final = "__cluster_metadata-0"
_CHECKPOINT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_SIZE_ENDS_AT: Final = 12


class NotReadable(Exception):
    """There is no log to check."""


class LogFiles:
    """The segments of one controller, and a snapshot (KIP-630) where they do not reach back to the first record.

    Attributes:
        begin: the first offset that is given out.
        snapshot: the state before it; empty where that is the first of all.

    Args:
        paths: directories, ``.log`` and ``.checkpoint`` files.

    Raises:
        NotReadable: no file, no metadata log, or no snapshot for a log that begins in the middle.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        files = [file for path in paths for file in _files(path)]
        self._segments = _segments(file for file in files if file.suffix == ".log")
        self.begin, self.snapshot = self._choose(file for file in files if file.suffix == ".checkpoint")

    def _choose(self, checkpoints: Iterator[Path]) -> tuple[int, tuple[RecordBatch, ...]]:
        """Take the oldest snapshot that the segments go on from; none is needed for a log that begins at 0."""
        first, path = self._segments[0]
        if first == 0:
            return 0, ()
        offsets = {int(match[1]): file for file in checkpoints if (match := _CHECKPOINT.fullmatch(file.name))}
        usable = [offset for offset in sorted(offsets) if offset >= first]
        if not usable:
            raise NotReadable(
                f"{path} begins at offset {first}, and no snapshot says what was before: give the whole "
                f"{TOPIC_FOLDER} directory of a controller, with its .checkpoint files"
            )
        return usable[0], _state(offsets[usable[0]])

    def __iter__(self) -> Iterator[RecordBatch]:
        for _, path in self._segments:
            for frame in _frames(path):
                if frame.last_offset >= self.begin:
                    yield _from(self.begin, decode(frame))


def _frames(path: Path) -> Iterator[EncodedBatch]:
    data, read, offset = _read(path), 0, 0
    for frame in split(data):
        read, offset = read + len(frame.data), frame.last_offset
        yield frame
    if read < len(data):
        rest = f"{len(data) - read} bytes after offset {offset}"
        sys.stderr.write(f"{path}: {rest} are no whole batch and were not checked (copied while it was written?)\n")


def _files(path: Path) -> list[Path]:
    """Give the files that a path stands for; a log directory stands for the metadata log in it."""
    if not path.is_dir():
        if path.suffix not in {".log", ".checkpoint"}:
            raise NotReadable(f"{path} is neither a directory nor a .log or .checkpoint file")
        return [path]
    folder = path / TOPIC_FOLDER if (path / TOPIC_FOLDER).is_dir() else path
    files = [file for file in sorted(folder.iterdir()) if file.suffix in {".log", ".checkpoint"}]
    if not any(file.suffix == ".log" for file in files):
        raise NotReadable(f"{folder} has no .log file; give the {TOPIC_FOLDER} directory of a controller")
    return files


def _segments(files: Iterator[Path]) -> list[tuple[int, Path]]:
    """Put segments in order, by the offset of their first record; empty ones, just rolled, are left out."""
    by_offset: dict[int, Path] = {}
    for path in files:
        offset = _first_offset(path)
        if offset in by_offset:
            raise NotReadable(
                f"{by_offset[offset]} and {path} both begin at offset {offset}: give the log of one controller"
            )
        if offset is not None:
            by_offset[offset] = path
    if not by_offset:
        raise NotReadable("there is no record to check: every .log file is empty, or none was given")
    return sorted(by_offset.items())


def _first_offset(path: Path) -> int | None:
    """Look at the first batch, whether this is a metadata log at all; None for an empty file."""
    try:
        with path.open("rb") as file:
            prefix = file.read(_SIZE_ENDS_AT)
            first = next(split(prefix + file.read(int.from_bytes(prefix[8:]))), None)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}") from None
    if not prefix:
        return None
    batch = None if first is None else decode(first)
    if batch is None or all(isinstance(record, UndecodableRecord) for record in batch.records):
        raise NotReadable(f"{path} is no segment of {TOPIC_FOLDER}: its first batch cannot be read")
    return batch.base_offset


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}") from None


def _state(path: Path) -> tuple[RecordBatch, ...]:
    """Refuse a snapshot that cannot be read as a whole: what follows could not be judged."""
    state = tuple(decode_batches(_read(path)))
    unreadable = [record for batch in state for record in batch.records if isinstance(record, UndecodableRecord)]
    if unreadable or not state:
        raise NotReadable(f"{path} cannot be read: {unreadable[0].reason if unreadable else 'it is empty'}")
    return state


def _from(begin: int, batch: RecordBatch) -> RecordBatch:
    """Leave out of a batch what a snapshot already says."""
    skipped = max(0, begin - batch.base_offset)
    return batch if not skipped else replace(batch, base_offset=Offset(begin), records=batch.records[skipped:])
