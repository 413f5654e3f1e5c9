"""Blocks of a full report that repeat the state, which workers recognise by digest and leave out.

The driver publishes the digests of the blocks that describe the state (``shards.decoded_batch``); workers that read the
bus send one row for consecutive blocks among them. The row is a hint: the driver checks every digest against the state
at that time, and reads the blocks from the bus if one no longer describes it. Knows the codec, neither Spark nor Arrow.
"""

from __future__ import annotations

import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.frames import BusFrame, DamagedRange
from streaming.changes.fold import UnchangedRun
from streaming.contracts.blocks import cut_block
from streaming.contracts.codec import envelope_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Heartbeat, Observation

DIGEST_BYTES: Final = 16
_GENERATION_BYTES: Final = 8
_ENVELOPE: Final = tuple(item.name for item in fields(UnchangedRun) if item.name not in {"sequence", "first_sequence"})
_SEQUENCE: Final = b',"sequence":'
_LAST_TO_BEGIN: Final = 2**62


def digest_of(envelope: Observation, body: bytes) -> bytes:
    """Return 128 bits of cluster, kind of source (a poller reports less than the log), and body of a block."""
    prefix = f"{envelope.cluster_id}/{envelope.source_kind}/".encode()
    return blake2b(prefix + body, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class RepeatedRun:
    """Consecutive repeated blocks of one log, whose envelopes differ only in the sequence number."""

    envelope: Heartbeat
    next_head: bytes
    digests: list[bytes] = field(default_factory=list)

    def extend(self, digests: Sequence[bytes]) -> None:
        """Add the next blocks."""
        self.digests += digests
        self.next_head = _with_later_sequence(self.next_head, len(digests))

    def as_observation(self) -> UnchangedRun:
        """Return the observation that replaces the blocks of the run."""
        envelope = {name: getattr(self.envelope, name) for name in _ENVELOPE}
        first = self.envelope.sequence
        return UnchangedRun(**envelope, first_sequence=first, sequence=first + len(self.digests) - 1)


def new_run(head: bytes) -> RepeatedRun | None:
    """Return a run without blocks yet that begins with an encoded envelope; None for other bytes.

    Also None if its sequence number is not encoded as by our codec, because the next envelope is compared byte by byte,
    or if later numbers might exceed 64 bits.
    """
    envelope = envelope_of(head)
    if envelope is None or not 0 < envelope.sequence < _LAST_TO_BEGIN or head.count(_SEQUENCE) != 1:
        return None
    return RepeatedRun(envelope, head) if b"%b%d," % (_SEQUENCE, envelope.sequence) in head else None


def run_with(run: RepeatedRun | None, payload: bytes, repeated: Container[bytes]) -> RepeatedRun | None:
    """Return the run that a record extends or begins; None if it is no block that repeats the state, by its digest."""
    cut = cut_block(payload)
    if cut is None:
        return None
    head, body = cut
    if run is None or run.next_head != head:
        run = new_run(head)
    if run is None or (digest := digest_of(run.envelope, body)) not in repeated:
        return None
    run.extend([digest])
    return run


def _with_later_sequence(head: bytes, step: int) -> bytes:
    """Return an encoded envelope with a later sequence number."""
    before, mark, rest = head.partition(_SEQUENCE)
    digits, comma, after = rest.partition(b",")
    return b"%b%b%d%b%b" % (before, mark, int(digits) + step, comma, after)


class LeftOutBlocks(NamedTuple):
    """A row of the bus that replaces consecutive blocks.

    Attributes:
        position: of the last block.
        payload: the encoded envelope of the first block.
        start: position of the first block.
        end: position after the last block.
        generation: of the published digests.
        places: indices of their digests among the published ones, as 32-bit numbers.
    """

    position: int
    payload: bytes
    start: int
    end: int
    generation: int
    places: bytes


@dataclass(frozen=True, slots=True)
class PublishedDigests:
    """Indices of the digests of blocks that described the state at one moment."""

    generation: int
    places: Mapping[bytes, int]

    def leave_out(self, items: Iterable[BusFrame | DamagedRange]) -> Iterator[BusFrame | DamagedRange | LeftOutBlocks]:
        """Replace consecutive blocks whose digests are published by one row."""
        run: RepeatedRun | None = None
        frames: list[BusFrame] = []
        for item in items:
            longer = run_with(run, item.payload, self.places) if isinstance(item, BusFrame) else None
            if run is not None and longer is not run:
                yield self._left_out(run, frames)
                frames = []
            run = longer
            if run is None:
                yield item
            elif isinstance(item, BusFrame):
                frames = [frames[0], item] if frames else [item]
        if run is not None:
            yield self._left_out(run, frames)

    def _left_out(self, run: RepeatedRun, frames: Sequence[BusFrame]) -> LeftOutBlocks:
        first, last = frames[0], frames[-1]
        head, _ = cut_block(first.payload) or (b"", b"")
        places = _packed(self.places[digest] for digest in run.digests)
        return LeftOutBlocks(last.position, head, first.position, last.end, self.generation, places)


def _packed(places: Iterable[int]) -> bytes:
    return array("I", places).tobytes()


@dataclass(slots=True)
class DigestPublisher:
    """Publishes digests in a file for the workers; without a path nothing is published or left out.

    The driver writes the file after a batch, and workers read it when the next one begins. The generation says whether
    they had the newest one; it changes when the driver restarts.
    """

    path: Path | None = None
    generation: int = 0
    digests: tuple[bytes, ...] = ()

    def withdraw(self) -> None:
        """Delete the file of an earlier run: its generation is unknown, so all blocks would be read twice."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def publish(self, digests: Iterable[bytes]) -> bool:
        """Replace the published digests; return False if that failed, and the earlier ones stay."""
        if self.path is None:
            return True
        newest, generation = tuple(digests), time.time_ns()
        draft = self.path.with_name(f".{self.path.name}.draft")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(b"".join((generation.to_bytes(_GENERATION_BYTES, "big"), *newest)))
            draft.replace(self.path)
        except OSError:
            return False
        self.generation, self.digests = generation, newest
        return True

    def digests_of(self, left_out: LeftOutBlocks) -> list[bytes] | None:
        """Return the digests of blocks that were left out; None if they are not of the last generation."""
        if left_out.generation != self.generation:
            return None
        places = array("I")
        places.frombytes(left_out.places)
        return [self.digests[place] for place in places]


def published_digests(path: Path) -> PublishedDigests | None:
    """Return the digests that were published last; None for none."""
    try:
        status = path.stat()
        return _read(path, (status.st_ino, status.st_mtime_ns))
    except FileNotFoundError:
        return None


@lru_cache(maxsize=1)
def _read(path: Path, _stamp: tuple[int, int]) -> PublishedDigests:
    content = path.read_bytes()
    generation = int.from_bytes(content[:_GENERATION_BYTES], "big")
    starts = range(_GENERATION_BYTES, len(content), DIGEST_BYTES)
    return PublishedDigests(generation, {content[at : at + DIGEST_BYTES]: n for n, at in enumerate(starts)})
