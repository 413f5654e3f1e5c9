"""A metadata log as batches: the files of a controller, or the log of a running cluster.

Knows files, addresses and snapshots; nothing of what the model makes of the records.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import Offset
from streaming.contracts.records import RecordBatch, UndecodableRecord
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, decode_batches, split
from streaming.sources.metadata_log.messages import LoadedSnapshot
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.tail import Progress, Tail
from streaming.sources.permissions import grantee_of
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.security import from_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from streaming.settings import ClusterSettings

TOPIC_FOLDER: Final = "__cluster_metadata-0"
PATIENCE_SECONDS: Final = 10.0  # a controller fail-over takes two or three
_CHECKPOINT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_SIZE_ENDS_AT: Final = 12


class NotReadable(ConfigurationError):
    """There is no log to check; exit code 2, because 1 says that a log deviates."""


class Start(NamedTuple):
    """The log is read from ``offset`` on, after a KRaft snapshot (KIP-630) or, without one, from its first record."""

    offset: int
    snapshot: tuple[RecordBatch, ...] = ()


class MetadataLog(Protocol):
    """A log to check. ``share`` is how much of it was given out, from 0 to 1."""

    share: float

    def __iter__(self) -> Iterator[Start | RecordBatch]:
        """Give a start and the batches after it; another start means that everything starts over."""


class LogFiles:
    """The segments of one controller, and a snapshot where the segments do not reach back to the first record.

    Args:
        paths: directories, ``.log`` and ``.checkpoint`` files.
        report: takes one line for people.

    Raises:
        NotReadable: no file, no metadata log, or no snapshot for a log that begins in the middle.
    """

    def __init__(self, paths: Sequence[Path], report: Callable[[str], None]) -> None:
        files = [file for path in paths for file in _files(path)]
        self.share = 0.0
        self._segments = _segments(file for file in files if file.suffix == ".log")
        self._snapshot = self._choose(file for file in files if file.suffix == ".checkpoint")
        self._report = report
        self._size = sum(path.stat().st_size for _, path in self._segments)

    def _choose(self, checkpoints: Iterator[Path]) -> tuple[int, Path] | None:
        """Take the oldest snapshot that the segments go on from; none is needed for a log that begins at 0."""
        first, path = self._segments[0]
        if first == 0:
            return None
        offsets = {int(match[1]): file for file in checkpoints if (match := _CHECKPOINT.fullmatch(file.name))}
        usable = [offset for offset in sorted(offsets) if offset >= first]
        if not usable:
            raise NotReadable(
                f"{path} begins at offset {first}, and no snapshot says what was before: give the whole "
                f"{TOPIC_FOLDER} directory of a controller, with its .checkpoint files"
            )
        return usable[0], offsets[usable[0]]

    def __iter__(self) -> Iterator[Start | RecordBatch]:
        """Give the start, then every batch from there on."""
        begin = 0
        if self._snapshot is not None:
            begin, path = self._snapshot
            yield Start(begin, _state(decode_batches(_read(path)), str(path)))
        else:
            yield Start(0)
        done = 0
        for _, path in self._segments:
            for frame in self._frames(path):
                done += len(frame.data)
                self.share = done / self._size
                if frame.last_offset >= begin:
                    yield _from(begin, decode(frame))

    def _frames(self, path: Path) -> Iterator[EncodedBatch]:
        data, read, offset = _read(path), 0, 0
        for frame in split(data):
            read, offset = read + len(frame.data), frame.last_offset
            yield frame
        if read < len(data):
            rest = f"{len(data) - read} bytes after offset {offset}"
            self._report(f"{path}: {rest} are no whole batch and were not checked (copied while it was written?)")


class LiveLog:
    """The log of a running cluster, as ``isrwatch collect`` reads it: needs ClusterAction on the cluster.

    Args:
        cluster: where it is, and how to log in.
        is_over: returns whether to stop; takes whether everything committed so far was given out.
        report: takes one line for people.

    Raises:
        NotReadable: from every method: nobody answers, or we may not read.
    """

    def __init__(
        self, cluster: ClusterSettings, *, is_over: Callable[[bool], bool], report: Callable[[str], None]
    ) -> None:
        self.share = 0.0
        self._is_over = is_over
        dial = dialer(from_client(cluster.client))
        servers, grantee = cluster.bootstrap_servers, grantee_of(cluster.bootstrap_servers, cluster.client)
        bootstrap = Bootstrap(parse_servers(servers), dial, ControllerAddresses(grantee=grantee), grantee)
        try:
            self._tail = Tail(bootstrap, dial, cluster_id=bootstrap.cluster_id(), report=report)
        except ConnectionRefused as refusal:
            raise NotReadable(str(refusal)) from refusal

    def __iter__(self) -> Iterator[Start | RecordBatch]:
        """Give what is committed, go on until it is over, then hang up."""
        position, begins = self._tail.position, True
        try:
            while not self._is_over(position.is_caught_up):
                progress = self._poll()
                self.share = position.applied.offset / max(1, position.high_watermark)
                begins = begins or progress.rewritten
                if progress.snapshot is not None:
                    yield _after(progress.snapshot)
                    begins = False
                elif begins and progress.batches:
                    yield Start(progress.batches[0].base_offset)
                    begins = False
                yield from progress.batches
        finally:
            self._tail.close()

    def _poll(self) -> Progress:
        """Wait up to half a second for news, and through a change of controllers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._tail.poll()
            except ConnectionRefused as refusal:
                if isinstance(refusal, ServiceRefused) or time.monotonic() > deadline:
                    raise NotReadable(str(refusal)) from refusal


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


def _after(snapshot: LoadedSnapshot) -> Start:
    offset = snapshot.end.offset
    return Start(offset, _state(snapshot.batches, f"the snapshot at offset {offset}"))


def _state(batches: Iterator[RecordBatch] | tuple[RecordBatch, ...], name: str) -> tuple[RecordBatch, ...]:
    """Refuse a snapshot that cannot be read as a whole: what follows could not be judged."""
    state = tuple(batches)
    unreadable = next(
        (record for batch in state for record in batch.records if isinstance(record, UndecodableRecord)), None
    )
    if unreadable is not None or not state:
        raise NotReadable(f"{name} cannot be read: {unreadable.reason if unreadable else 'it is empty'}")
    return state


def _from(begin: int, batch: RecordBatch) -> RecordBatch:
    """Leave out of a batch what a snapshot already says."""
    skipped = max(0, begin - batch.base_offset)
    return batch if not skipped else replace(batch, base_offset=Offset(begin), records=batch.records[skipped:])
