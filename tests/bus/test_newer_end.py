"""A log that ends with a record of a newer isrwatch: this program does not write it, and leaves every byte as it is."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.codec import encode
from streaming.contracts.observations import SCHEMA_VERSION, Channel
from streaming.errors import NewerFormat
from tests.bus.conftest import Heartbeats

A = "poll:a"
TAILS = {"whole": b"", "torn": b"torn frame?", "half": None}


def publisher(bus: Path) -> closing[DirectoryPublisher]:
    return closing(DirectoryPublisher(bus, segment_bytes=1 << 20, fsync=False))


def files(bus: Path) -> dict[str, bytes]:
    """Every segment with content; an empty one is no record."""
    return {file.name: data for file in sorted(bus.rglob("*.log")) if (data := file.read_bytes())}


@pytest.mark.parametrize("tail", TAILS)
def test_opening_it_for_writing_is_refused_in_one_sentence_and_changes_no_byte(
    tmp_path: Path, heartbeat: Heartbeats, tail: str
) -> None:
    newer = json.dumps(json.loads(encode(heartbeat(2))) | {"v": SCHEMA_VERSION + 1, "kind": "news"}).encode()
    with publisher(tmp_path) as older:
        older.publish([heartbeat(1)])
        older.publish_raw(Channel.REPLICATION, A, newer)
    (segment,) = (file for file in tmp_path.rglob("*.log") if file.stat().st_size)
    data = segment.read_bytes()
    segment.write_bytes(data + (data[: len(data) // 4] if tail == "half" else TAILS[tail] or b""))
    before = files(tmp_path)
    for _ in range(2):
        with publisher(tmp_path) as again, pytest.raises(NewerFormat) as refused:
            again.publish([heartbeat(3)])
        assert str(refused.value) == (
            f"{segment.parent} ends with a record of a newer isrwatch, this program writes format {SCHEMA_VERSION}; "
            "upgrade isrwatch collect"
        )
    assert files(tmp_path) == before
    reader = DirectoryReader(tmp_path)
    payloads = [
        item[1] for item in reader.read(Channel.REPLICATION, A, 0, reader.end_positions(Channel.REPLICATION)[A])
    ]
    assert payloads[1] == newer
    assert len(payloads) == 2
