"""A story on the bus with records that are none of ours in its middle, and with two damaged segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from streaming.bus.directory import DirectoryPublisher
from streaming.bus.frames import BusFrame, parse
from streaming.bus.segments import folder_of
from streaming.contracts.observations import Channel, Observation

ODD = (
    b"no JSON at all",
    json.dumps({"v": 0, "kind": "partition"}).encode(),
    json.dumps({"v": 1, "kind": "dream"}).encode(),
    json.dumps({"v": 1, "kind": "undecodable", "reason": "unknown record type 77", "raw": "00"}).encode(),
)
REASONS = ("not JSON", "schema version 0", "unknown kind 'dream'", "unknown record type 77")
DAMAGES = ("10 bytes are missing", "checksum mismatch", "incomplete frame")
_FIRST = 50
"""The record after which the odd ones come."""


def publish_with_faults(bus: Path, story: Sequence[Observation]) -> list[Observation]:
    """Publish a story of one source; give what of it can still be read."""
    source = story[0].source
    with closing(DirectoryPublisher(bus, segment_bytes=4096)) as publisher:
        for number, observed in enumerate(story):
            publisher.publish([observed])
            if number in range(_FIRST, _FIRST + len(ODD)):
                publisher.publish_raw(Channel.REPLICATION, source, ODD[number - _FIRST])
    lost = _damage(sorted((bus / Channel.REPLICATION / folder_of(source)).glob("*.log")))
    assert all(0 < number <= len(story) for number in lost)
    return [observed for observed in story if observed.sequence not in lost]


def _damage(segments: Sequence[Path]) -> set[int]:
    """Flip a byte of one record and cut another segment short: give the numbers of the two records that are gone."""
    assert len(segments) > 6, "the story fills several segments"
    flipped, cut = segments[3], segments[5]
    data = bytearray(flipped.read_bytes())
    at = len(data) // 2
    damaged = next(number for end, number in _sequences(bytes(data)) if end > at)
    data[at] ^= 0xFF
    flipped.write_bytes(data)
    _, last = _sequences(cut.read_bytes())[-1]
    cut.write_bytes(cut.read_bytes()[:-10])
    return {damaged, last}


def _sequences(data: bytes) -> list[tuple[int, int]]:
    """Where each numbered record of a segment ends, and its number."""
    items, _ = parse(data, 0, closed=True)
    return [(item.end, json.loads(item.payload).get("sequence", 0)) for item in items if isinstance(item, BusFrame)]
