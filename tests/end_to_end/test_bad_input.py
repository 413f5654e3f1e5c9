"""Bad input goes to quarantine with its reason, whole; nothing else is lost, and the stream goes on."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.observations import Channel
from tests.end_to_end.stories import essence, expected_changes, long_story

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.contracts.observations import Observation
    from tests.plugins.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCE = "metadata_log:a"


def publish_with_faults(bus: Path, story: Sequence[Observation]) -> None:
    """Write a story with records that are none of ours in its middle, and damage two of its segments."""
    odd = [
        b"no JSON at all",
        json.dumps({"v": 0, "kind": "partition"}).encode(),
        json.dumps({"v": 1, "kind": "dream"}).encode(),
        json.dumps({"v": 1, "kind": "undecodable", "reason": "unknown record type 77", "raw": "00"}).encode(),
    ]
    with closing(DirectoryPublisher(bus, segment_bytes=4096)) as publisher:
        for number, observed in enumerate(story):
            publisher.publish([observed])
            if number in (50, 51, 52, 53):
                publisher.publish_raw(Channel.REPLICATION, SOURCE, odd[number - 50])


def segments(bus: Path) -> list[Path]:
    (log,) = (bus / Channel.REPLICATION).iterdir()
    return sorted(log.glob("*.log"))


def test_everything_odd_is_in_quarantine_and_everything_else_is_applied(pipeline: Pipeline) -> None:
    story = long_story(seed=4, steps=200)
    publish_with_faults(pipeline.bus, story)
    lost = damage(segments(pipeline.bus), story)

    job = pipeline.job()
    pipeline.eventually(
        lambda: any((row["sequence"] or 0) >= len(story) for row in pipeline.rows("partition_changes")),
        "the story behind the faults is applied",
        job,
    )
    assert job.stop_group() == 0, job.text()[-3000:]

    reasons = [row["reason"] for row in sorted(pipeline.rows("quarantine"), key=lambda row: row["position"])]
    assert sum("not JSON" in reason for reason in reasons) == 1, reasons
    assert sum("schema version 0" in reason for reason in reasons) == 1, reasons
    assert sum("unknown kind 'dream'" in reason for reason in reasons) == 1, reasons
    assert sum("unknown record type 77" in reason for reason in reasons) == 1, reasons
    assert sorted(reasons[:3]) == ["10 bytes are missing", "checksum mismatch", "incomplete frame"]
    assert len(reasons) == 7, reasons
    kept = [observed for observed in story if observed.sequence not in lost]
    assert essence(pipeline.rows("partition_changes")) == expected_changes(kept)


def damage(found: Sequence[Path], story: Sequence[Observation]) -> set[int]:
    """Flip a byte of one record and cut another segment short: give the numbers of the two records that are gone."""
    assert len(found) > 6, "the story fills several segments"
    flipped, cut = found[3], found[5]
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 0xFF
    lost = {_sequence_at(bytes(flipped.read_bytes()), len(data) // 2), _last_sequence(cut.read_bytes())}
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-10])
    assert all(0 < number <= len(story) for number in lost)
    return lost


def _sequences(data: bytes) -> list[tuple[int, int]]:
    """Where each numbered record of a segment ends, and its number."""
    from streaming.bus.frames import BusFrame, parse  # noqa: PLC0415

    items, _ = parse(data, 0, closed=True)
    return [(item.end, json.loads(item.payload).get("sequence", 0)) for item in items if isinstance(item, BusFrame)]


def _sequence_at(data: bytes, offset: int) -> int:
    return next(number for end, number in _sequences(data) if end > offset)


def _last_sequence(data: bytes) -> int:
    return _sequences(data)[-1][1]
