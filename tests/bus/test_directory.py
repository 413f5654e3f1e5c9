"""The directory on a real disk: restarts, rolls, locks, a full disk."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import encode_frame
from streaming.bus.log import refuse_written
from streaming.bus.segments import folder_of, segment_name, source_of
from streaming.contracts.codec import decode
from streaming.contracts.observations import Channel
from streaming.errors import BusReplaced, ConfigurationError, IsrwatchError
from tests.bus.conftest import Heartbeats, payloads

A = "poll:a"
REPLICATION = Channel.REPLICATION


def opened(directory: Path, segment_bytes: int = 1 << 20) -> DirectoryPublisher:
    return DirectoryPublisher(directory, segment_bytes=segment_bytes)


def sequences(directory: Path, source: str = A) -> list[int]:
    return [decode(payload).sequence for payload in payloads(directory, source=source)]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "replication" / "poll%3Aa").glob("*.log"))


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a full disk does: what fits is written, then it fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_second_run_goes_on_in_a_segment_of_its_own(tmp_path: Path, heartbeat: Heartbeats) -> None:
    for moments in ((1, 2), (3,)):
        with closing(opened(tmp_path)) as publisher:
            publisher.publish([heartbeat(moment) for moment in moments])
    assert sequences(tmp_path) == [1, 2, 3]
    assert len(files(tmp_path)) == 2


def test_a_run_that_wrote_nothing_leaves_no_second_segment(tmp_path: Path) -> None:
    for _ in range(3):
        with closing(opened(tmp_path)) as publisher, pytest.raises(ValueError, match="longer than"):
            publisher.publish_raw(REPLICATION, A, bytes(1 << 27))
    (file,) = files(tmp_path)
    assert re.fullmatch(r"0{20}-[0-9a-f]{16}\.log", file)


def test_a_full_segment_is_followed_by_one_named_by_its_position(tmp_path: Path, heartbeat: Heartbeats) -> None:
    with closing(opened(tmp_path, segment_bytes=1)) as publisher:
        for moment in (1, 2, 3):
            publisher.publish([heartbeat(moment)])
    first, second, third = files(tmp_path)
    size = (tmp_path / "replication" / "poll%3Aa" / first).stat().st_size
    log_id = first.partition("-")[2]
    assert [f"{position:020d}-{log_id}" for position in (0, size, 2 * size)] == [first, second, third]
    assert sequences(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("removed", ["bus", "segment"])
def test_what_is_written_to_a_log_that_was_removed_is_refused_and_begins_another_one(
    tmp_path: Path, heartbeat: Heartbeats, removed: str
) -> None:
    bus = tmp_path / "bus"
    with closing(opened(bus)) as publisher:
        publisher.publish([heartbeat(1)])
        (segment,) = bus.glob("replication/*/*.log")
        segment.unlink() if removed == "segment" else shutil.rmtree(bus)
        with pytest.raises(BusReplaced, match=r"was removed or replaced while it was written, so the job may lack"):
            publisher.publish([heartbeat(2)])
        publisher.publish([heartbeat(2)])
        publisher.publish([heartbeat(3)])
    assert sequences(bus) == [1, 2]


def test_a_second_writer_of_a_log_is_refused_in_words(tmp_path: Path, heartbeat: Heartbeats) -> None:
    with closing(opened(tmp_path)) as first, closing(opened(tmp_path)) as second:
        first.publish([heartbeat(1)])
        sentence = (
            f"another process already writes the log of poll:a in {tmp_path / 'replication'}: stop it, or give this "
            "collector another name (collect.collector)"
        )
        with pytest.raises(ConfigurationError, match=re.escape(sentence)):
            second.publish([heartbeat(2)])
        with pytest.raises(ConfigurationError, match=re.escape(sentence)):
            refuse_written(tmp_path, ["poll:b", "poll:a"])
        refuse_written(tmp_path, ["poll:b"])
        second.publish([heartbeat(2, source="poll:b")])
    assert sequences(tmp_path) == [1]
    assert sequences(tmp_path, "poll:b") == [1]


def test_the_lock_of_a_killed_writer_is_gone_with_it(tmp_path: Path, heartbeat: Heartbeats) -> None:
    script = (
        "import os, sys; from pathlib import Path; from streaming.bus.directory import DirectoryPublisher;"
        "DirectoryPublisher(Path(sys.argv[1]), segment_bytes=1000).publish_raw('replication', 'poll:a', b'{}');"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    with closing(opened(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
    assert killed.returncode == -9
    assert len(files(tmp_path)) == 2


def test_a_full_disk_is_told_and_leaves_whole_frames(tmp_path: Path, heartbeat: Heartbeats) -> None:
    with closing(opened(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        size = DirectoryReader(tmp_path).end_positions(REPLICATION)[A]
        with full_disk(size + 10), pytest.raises(IsrwatchError, match=r"cannot write the bus .*: File too large; free"):
            publisher.publish([heartbeat(2)])
        assert sequences(tmp_path) == [1]
        assert size == (tmp_path / "replication" / "poll%3Aa" / files(tmp_path)[0]).stat().st_size
        publisher.publish([heartbeat(2)])
    assert sequences(tmp_path) == [1, 2]


def test_a_frame_that_a_reader_may_have_passed_stays_when_the_rest_did_not_fit(
    tmp_path: Path, heartbeat: Heartbeats
) -> None:
    """Publishing again repeats it under the next number: doubled, never lost, never another under its position."""
    with closing(opened(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        size = DirectoryReader(tmp_path).end_positions(REPLICATION)[A]
        with full_disk(2 * size + 10), pytest.raises(IsrwatchError, match="File too large"):
            publisher.publish([heartbeat(2), heartbeat(3)])
        publisher.publish([heartbeat(2), heartbeat(3)])
    assert sequences(tmp_path) == [1, 2, 3, 4]


def test_a_directory_that_cannot_be_made_is_told_in_words(tmp_path: Path, heartbeat: Heartbeats) -> None:
    (tmp_path / "bus").write_text("a file")
    with (
        closing(opened(tmp_path / "bus")) as publisher,
        pytest.raises(IsrwatchError, match="cannot write the bus below"),
    ):
        publisher.publish([heartbeat(1)])


def test_a_reader_sees_a_frame_only_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "replication" / "poll%3Aa"
    log.mkdir(parents=True)
    reader = DirectoryReader(tmp_path)
    frame = encode_frame(b"payload")
    with (log / segment_name(0, 1)).open("wb", buffering=0) as file:
        for number, byte in enumerate(frame, start=1):
            file.write(bytes([byte]))
            assert {A: len(frame) if number == len(frame) else 0} == reader.end_positions(REPLICATION)


def test_two_readers_agree_however_often_they_looked(tmp_path: Path, heartbeat: Heartbeats) -> None:
    steady = DirectoryReader(tmp_path)
    with closing(opened(tmp_path, segment_bytes=500)) as publisher:
        for moment in range(1, 20):
            publisher.publish([heartbeat(moment)])
            assert DirectoryReader(tmp_path).end_positions(REPLICATION) == steady.end_positions(REPLICATION)


def test_an_observation_larger_than_a_segment_travels(tmp_path: Path) -> None:
    payload = bytes(3 << 20)
    with closing(opened(tmp_path, segment_bytes=1024)) as publisher:
        publisher.publish_raw(REPLICATION, A, payload)
        publisher.publish_raw(REPLICATION, A, b"next")
    assert payloads(tmp_path) == [payload, b"next"]


@pytest.mark.parametrize("source", ["metadata_log:collector-1", "..", "a/b", "ä ö", "%2F", ".lock", "x.log"])
def test_a_source_is_a_folder_within_its_channel(source: str) -> None:
    folder = folder_of(source)
    assert source == source_of(folder)
    assert "/" not in folder
    assert not folder.startswith(".")


def test_whether_a_channel_has_moved_is_told_after_each_kind_of_write(tmp_path: Path, heartbeat: Heartbeats) -> None:
    reader = DirectoryReader(tmp_path)
    assert reader.has_moved(REPLICATION)  # it was not looked at yet

    def moved() -> bool:
        """Return whether the channel moved since the last look, and look."""
        news = reader.has_moved(REPLICATION)
        reader.end_positions(REPLICATION)
        reader.end_positions(Channel.SAMPLES)  # another channel's look is not this one's
        return news

    assert moved()
    assert not moved()
    with closing(opened(tmp_path, segment_bytes=1)) as publisher:  # each record begins a segment
        publisher.publish([heartbeat(1)])
        assert moved()
        assert not moved()
        publisher.publish([heartbeat(2)])
        assert moved()
        publisher.publish([replace(heartbeat(3), source="poll:b")])
        assert moved()
    assert not moved()
    shutil.rmtree(tmp_path / REPLICATION / folder_of("poll:b"))
    assert moved()
