"""Whatever happens to the bytes: every undamaged record is read exactly once, the rest is told, nothing is doubled."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import HEADER_BYTES, BusFrame, DamagedRange
from streaming.contracts.codec import decode
from streaming.contracts.observations import Channel
from tests.bus.conftest import Heartbeats
from tests.examples import examples

A = "poll:a"
REPLICATION = Channel.REPLICATION
BATCHES = st.lists(st.integers(1, 4), min_size=1, max_size=6)
SEGMENT_BYTES = st.sampled_from([1, 700, 1 << 20])


class Disk:
    """A bus directory that can be harmed, and a reader that follows it all the time."""

    def __init__(self, directory: str, segment_bytes: int, heartbeat: Heartbeats) -> None:
        self.directory = Path(directory)
        self._segment_bytes = segment_bytes
        self._heartbeat = heartbeat
        self._moment = 0
        self._reader = DirectoryReader(self.directory)
        self._position = 0
        self.followed: list[BusFrame | DamagedRange] = []

    def publish(self, batches: list[int]) -> None:
        """Run a publisher that writes batches of these sizes."""
        with closing(DirectoryPublisher(self.directory, segment_bytes=self._segment_bytes, fsync=False)) as publisher:
            for size in batches:
                moments = range(self._moment + 1, self._moment + size + 1)
                publisher.publish([self._heartbeat(moment) for moment in moments])
                self._moment += size
                self.follow()

    def follow(self) -> None:
        """Read what is new, as a job does."""
        end = self._reader.end_positions(REPLICATION)[A]
        assert end >= self._position
        self.followed += self._reader.read(REPLICATION, A, self._position, end)
        self._position = end

    def files(self) -> list[Path]:
        return sorted((self.directory / "replication").glob("*/*.log"))

    def read(self) -> list[BusFrame | DamagedRange]:
        """Read everything with a reader that has seen nothing before."""
        reader = DirectoryReader(self.directory)
        return list(reader.read(REPLICATION, A, 0, reader.end_positions(REPLICATION)[A]))


def base_of(segment: Path) -> int:
    """The position at which a segment begins; the id of its log follows in its name."""
    return int(segment.stem.partition("-")[0])


def frames(items: list[BusFrame | DamagedRange]) -> list[BusFrame]:
    return [item for item in items if isinstance(item, BusFrame)]


@settings(max_examples=examples(20))
@given(batches=BATCHES, segment_bytes=SEGMENT_BYTES)
def test_however_it_was_written_everything_is_read_once_in_order(
    batches: list[int], segment_bytes: int, heartbeat: Heartbeats
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(directory, segment_bytes, heartbeat)
        for batch in batches:
            disk.publish([batch])
        found = disk.read()
        assert list(range(1, sum(batches) + 1)) == [decode(frame.payload).sequence for frame in frames(found)]
        assert found == disk.followed


@settings(max_examples=examples(20))
@given(before=BATCHES, after=BATCHES, segment_bytes=SEGMENT_BYTES, data=st.data())
def test_a_writer_killed_at_any_byte_loses_its_last_frame_only(
    before: list[int], after: list[int], segment_bytes: int, data: st.DataObject, heartbeat: Heartbeats
) -> None:
    """The newest file ends at any byte; no reader has passed what is cut off, for nobody follows before the cut."""
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(directory, segment_bytes, heartbeat)
        disk.follow = lambda: None  # type: ignore[method-assign] - reads only after the kill
        disk.publish(before)
        written = frames(disk.read())
        newest = disk.files()[-1]
        size = data.draw(st.integers(0, newest.stat().st_size))
        with newest.open("r+b") as file:
            file.truncate(size)
        end = int(newest.name[:20]) + size
        survived = [frame for frame in written if frame.end <= end]
        assert survived == frames(disk.read())
        disk.publish(after)
        found = disk.read()
        assert found == frames(found), "an incomplete last frame is cut off, not told"
        assert survived == found[: len(survived)]
        assert list(range(1, len(survived) + sum(after) + 1)) == [
            decode(frame.payload).sequence for frame in frames(found)
        ]
        assert all(one.end == two.position for one, two in itertools.pairwise(found))


@settings(max_examples=examples(20))
@given(before=BATCHES, after=BATCHES, segment_bytes=SEGMENT_BYTES, data=st.data())
def test_a_damaged_byte_costs_its_own_record_only(
    before: list[int], after: list[int], segment_bytes: int, data: st.DataObject, heartbeat: Heartbeats
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(directory, segment_bytes, heartbeat)
        disk.publish(before)
        written = frames(disk.followed)
        harmed = data.draw(st.sampled_from([file for file in disk.files() if file.stat().st_size]))
        content = bytearray(harmed.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        harmed.write_bytes(content)
        position = base_of(harmed) + at
        disk.publish(after)
        found = disk.read()
        undamaged = [frame for frame in written if not frame.position <= position < frame.end]
        assert undamaged == frames(found)[: len(undamaged)]
        assert len(undamaged) + sum(after) == len(frames(found))
        told = [item for item in found if isinstance(item, DamagedRange)]
        assert all(item.position <= position < item.end for item in told)
        # A last frame that seems longer than its file cannot be told from one that was never completed.
        assert told or position - written[-1].position in range(HEADER_BYTES)


@settings(max_examples=examples(20))
@given(before=BATCHES, after=BATCHES, data=st.data())
def test_a_damaged_last_record_leaves_a_gap_in_the_numbers(
    before: list[int], after: list[int], data: st.DataObject, heartbeat: Heartbeats
) -> None:
    """So the fold sees that something is missing."""
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(directory, 1 << 20, heartbeat)
        disk.publish(before)
        (file,) = disk.files()
        last = frames(disk.followed)[-1]
        content = bytearray(file.read_bytes())
        content[-data.draw(st.integers(1, len(last.payload)))] ^= 0x55
        file.write_bytes(content)
        disk.publish(after)
        count = sum(before)
        numbers = [decode(frame.payload).sequence for frame in frames(disk.read())]
        assert [*range(1, count), *range(count + 1, count + sum(after) + 1)] == numbers


@settings(max_examples=examples(20))
@given(before=BATCHES, data=st.data(), segment_bytes=st.sampled_from([1, 700]))
def test_bytes_that_are_missing_from_an_older_segment_are_told(
    before: list[int], data: st.DataObject, segment_bytes: int, heartbeat: Heartbeats
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(directory, segment_bytes, heartbeat)
        disk.publish(before)
        disk.publish([1])
        written = frames(disk.followed)
        cut = data.draw(st.sampled_from(disk.files()[:-1]))
        size = data.draw(st.integers(0, cut.stat().st_size - 1))
        missing = range(base_of(cut) + size, base_of(cut) + cut.stat().st_size)
        with cut.open("r+b") as file:
            file.truncate(size)
        found = disk.read()
        whole = [frame for frame in written if frame.end <= missing.start or frame.position >= missing.stop]
        assert whole == frames(found)
        assert missing.stop == max(item.end for item in found if isinstance(item, DamagedRange))
        assert f"{len(missing)} bytes are missing" in [item.reason for item in found if isinstance(item, DamagedRange)]
