"""The metadata-log source against a quorum in threads: what it tells, and what a checkpoint is worth."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation, SnapshotBegin, SnapshotReason
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources import checkpoint
from streaming.sources.metadata_log.decoding import decode, split
from streaming.sources.metadata_log.image import ClusterImage
from streaming.sources.metadata_log.messages import LogEnd
from streaming.sources.metadata_log.opening import checkpoint_path
from streaming.sources.metadata_log.quorum import AS_ADVERTISED, Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.blocks import singly
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streaming.sources.metadata_log.decoding import EncodedBatch

NAME = "metadata_log:test"
PATIENCE = 30.0


class Watch:
    """A source on a quorum, with a clock that stands still until it is moved, and everything that it reported."""

    def __init__(
        self, quorum: Any, path: Path, controllers: ControllerAddresses = AS_ADVERTISED, **settings: float
    ) -> None:
        dial = dialer(Security())
        self.lines: list[str] = []
        self.reported: list[Observation] = []
        self.now = Micros(2_000_000_000_000_000)
        self.set_back = 0
        self.source = MetadataLogSource(
            Bootstrap(parse_servers(quorum.addresses()), dial, controllers),
            dial,
            cluster="test",
            name=NAME,
            path=path,
            heartbeat_seconds=settings.get("heartbeat_seconds", 5.0),
            snapshot_seconds=settings.get("snapshot_seconds", 3600.0),
            report=self.lines.append,
            clock=lambda: self.now,
            timer=lambda: Micros(self.now - self.set_back),
            resync_seconds=settings.get("resync_seconds", 0.0),
        )

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.lines
            try:
                self.reported += self.source.poll(self.now)
            except ConnectionRefused as refusal:
                self.lines.append(str(refusal))

    def reach(self, offset: int) -> None:
        self.until(lambda: self.source._image.image_offset >= offset and bool(self.reported))

    def changes(self) -> list[Observation]:
        """Give what was reported outside of snapshots, without what may differ from run to run."""
        return essence(self.reported)

    def snapshots(self) -> list[tuple[SnapshotReason, int]]:
        return [(one.reason, one.metadata_offset or 0) for one in self.reported if isinstance(one, SnapshotBegin)]


def essence(reported: list[Observation]) -> list[Observation]:
    inside, found = False, []
    for one in reported:
        inside = one.kind == "snapshot_begin" or (inside and one.kind != "snapshot_end")
        if not inside and one.kind not in {"heartbeat", "snapshot_end"}:
            found.append(replace(one, collected_at=Micros(0)))
    return found


def in_epoch(epoch: int, frame: EncodedBatch) -> EncodedBatch:
    """Let a batch be written in another raft epoch, which its checksum does not cover."""
    return frame._replace(epoch=epoch, data=frame.data[:12] + struct.pack(">i", epoch) + frame.data[16:])


@pytest.fixture
def watch(quorum: Any, tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    """Watch the quorum; the checkpoint file is the same each time."""
    opened: list[Watch] = []

    def make(**settings: Any) -> Watch:
        opened.append(Watch(quorum, tmp_path / "checkpoint.json", **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.source._tail.close()


@pytest.fixture(scope="session")
def expected(frames: tuple[EncodedBatch, ...]) -> Callable[[int], list[Observation]]:
    """Give what an image fed with the decoded log itself tells from one batch on."""

    def after(start: int) -> list[Observation]:
        image = ClusterImage(cluster_id="4L6g3nShT-eMCtK--X86sw", cluster="test", source=NAME)  # type: ignore[arg-type]
        image.load(map(decode, frames[:start]))
        return essence([one for frame in frames[start:] for one in image.apply(decode(frame), Micros(0))])

    return after


def test_what_is_there_is_one_snapshot_and_what_follows_is_reported_change_by_change(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    assert seen.snapshots() == [(SnapshotReason.START, frames[49].last_offset)]
    assert not seen.changes()
    quorum.append(*frames[50:])
    seen.reach(191)
    assert expected(50) == seen.changes()
    assert len(seen.changes()) > 30


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_however_the_log_is_cut_into_answers_the_observations_are_the_same(
    quorum: Any, tmp_path_factory: Any, frames: tuple[EncodedBatch, ...], expected: Any, data: st.DataObject
) -> None:
    start = data.draw(st.integers(min_value=1, max_value=len(frames)))
    cuts = sorted(data.draw(st.lists(st.integers(min_value=start, max_value=len(frames)), max_size=6)))
    quorum.answer_bytes = data.draw(st.integers(min_value=1, max_value=4_000))
    quorum.log.clear()
    quorum.append(*frames[:start])
    seen = Watch(quorum, tmp_path_factory.mktemp("cut") / "checkpoint.json")
    seen.reach(frames[start - 1].last_offset)
    for low, high in zip([start, *cuts], [*cuts, len(frames)], strict=True):
        quorum.append(*frames[low:high])
        seen.reach(quorum.end - 1)
    seen.source._tail.close()
    assert expected(start) == seen.changes()


def test_what_is_not_committed_is_held_back(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames)
    quorum.high_watermark = frames[60].base_offset
    seen = watch()
    seen.reach(frames[59].last_offset)
    for _ in range(3):
        seen.reported += seen.source.poll(seen.now)
    assert seen.source._image.image_offset == frames[59].last_offset
    assert not seen.changes()
    quorum.high_watermark = frames[60].last_offset + 1
    seen.reach(frames[60].last_offset)
    quorum.high_watermark = None
    seen.reach(191)
    assert expected(60) == seen.changes()


def test_the_own_high_watermark_goes_out_with_version_18_only(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    seen.source.poll(seen.now)
    assert quorum.requests[-1].topics[0].partitions[0].high_watermark == 192
    assert quorum.requests[-1].API_VERSION == 18


@pytest.mark.parametrize("version", [17, 13])
def test_an_older_controller_is_read_as_well(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any, version: int
) -> None:
    quorum.versions[1] = version
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    quorum.append(*frames[50:])
    seen.reach(191)
    assert expected(50) == seen.changes()
    assert {request.API_VERSION for request in quorum.requests} == {version}


def test_uncommitted_batches_that_a_new_leader_does_not_have_are_dropped(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any, make_batch: Any
) -> None:
    at = frames[80].base_offset
    quorum.append(*frames[:80])
    seen = watch()
    seen.reach(at - 1)
    quorum.high_watermark = at
    lost = make_batch(at, 1, b"\x01\x09\x00" + bytes(16) + b"\x00", b"\x01\x14\x00\x00")
    quorum.append(lost)
    seen.until(lambda: seen.source._tail.position.end.offset == at + 2)
    quorum.log.pop()
    won = [in_epoch(2, frame) for frame in frames[80:]]
    quorum.elect(leader=2, epoch=2)
    quorum.append(*won)
    quorum.high_watermark = None
    seen.reach(191)
    assert expected(80) == seen.changes()
    assert seen.source._tail.position.applied == LogEnd(192, 2)


def test_a_change_of_leader_is_followed_by_what_the_old_one_tells(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    quorum.elect(leader=3, epoch=2)
    quorum.append(*(in_epoch(2, frame) for frame in frames[50:]))
    seen.reach(191)
    assert expected(50) == seen.changes()
    assert sum("lost the metadata log" in line for line in seen.lines) == 1
    assert seen.lines[-1].startswith("reading the metadata log from controller 3 ")


def test_a_dead_leader_is_replaced_by_asking_the_other_controllers(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    quorum.nodes[1].stop()  # the followers still name node 1 for a while
    for _ in range(2):
        seen.source.poll(seen.now)
    quorum.elect(leader=2, epoch=2)
    quorum.append(*(in_epoch(2, frame) for frame in frames[50:]))
    seen.reach(191)
    assert expected(50) == seen.changes()


def test_disconnections_in_the_middle_lose_and_double_nothing(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.answer_bytes = 300
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    quorum.append(*frames[50:])
    for target in range(60, 192, 30):
        seen.reach(target)
        quorum.nodes[1].disconnect()
    seen.reach(191)
    assert expected(50) == seen.changes()


@pytest.mark.parametrize("error", [74, 75, 42, 3, -1])
def test_an_error_is_answered_by_a_pause_and_another_question(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any, error: int
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    quorum.fetch_error = error
    pauses: list[float] = []
    seen.source._tail._pause = pauses.append
    for _ in range(4):
        seen.source.poll(seen.now)
    assert len(pauses) == 4
    assert pauses == sorted(pauses)
    assert all(0.05 <= pause <= 0.5 for pause in pauses)
    quorum.fetch_error = 0
    quorum.append(*frames[50:])
    seen.reach(191)
    assert expected(50) == seen.changes()


def test_controllers_that_all_fail_are_reported_once_a_round(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    quorum.fetch_error = 3
    seen.source._tail._pause = lambda _: None
    for _ in range(6):
        assert not seen.source.poll(seen.now)
    with pytest.raises(
        ConnectionRefused, match=r"^no controller serves the metadata log: 127\.0\.0\.1:\d+ responds with UNKNOWN"
    ):
        seen.source.poll(seen.now)


def test_a_missing_permission_is_one_sentence_that_names_it(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    quorum.fetch_error = 31
    seen = watch()
    with pytest.raises(
        ConnectionRefused,
        match=r'lacks ClusterAction on the cluster: .* \(collect\.primary_source = "poll" does without\)',
    ):
        seen.source.connect(seconds=0)
    quorum.fetch_error, quorum.quorum_error = 0, 31
    with pytest.raises(ConnectionRefused, match=r"lacks Describe on the cluster: no broker says where"):
        watch().source.connect(seconds=0)


def test_what_connecting_brought_is_not_lost(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.source.connect(seconds=0)
    seen.reach(frames[49].last_offset)
    quorum.append(*frames[50:])
    seen.reach(191)
    assert expected(50) == seen.changes()


def test_a_start_on_a_snapshot_tells_its_partitions_and_what_the_log_adds(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    quorum.snapshot = (LogEnd(5_000, 1), gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes()))
    quorum.log_start = 5_000
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00", timestamp=1_795_249_930_000))
    seen = watch()
    seen.reach(5_000)
    assert seen.snapshots() == [(SnapshotReason.START, 5_000)]
    partitions = [one for one in singly(seen.reported) if one.kind == "partition"]
    assert len(partitions) == 3_000
    assert {one.occurred_not_after for one in partitions} == {1_795_249_930_000_000}
    assert [(one.controller, one.controller_epoch) for one in seen.reported if one.kind == "controller"] == [(1, 1)]


def test_a_snapshot_from_before_an_election_does_not_guess_who_leads(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    quorum.snapshot = (LogEnd(5_000, 1), gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes()))
    quorum.log_start = 5_000
    quorum.elect(leader=2, epoch=2)
    quorum.append(
        make_batch(5_000, 2, struct.pack(">i", 2), attributes=0x20), make_batch(5_001, 2, b"\x01\x14\x00\x00")
    )
    quorum.high_watermark = 5_000
    seen = watch()
    seen.reach(4_999)
    assert not [one for one in seen.reported if one.kind == "controller"]
    quorum.high_watermark = None
    seen.reach(5_001)
    assert [(one.controller, one.controller_epoch) for one in seen.reported if one.kind == "controller"] == [(2, 2)]


def test_a_snapshot_that_is_gone_in_the_middle_is_asked_for_again(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    data = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    quorum.snapshot = (LogEnd(5_000, 1), data)
    quorum.log_start = 5_000
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00"), make_batch(5_001, 1, b"\x01\x14\x00\x00"))
    seen = watch()
    node, pieces = quorum.nodes[1], []
    answer = node.answer_FetchSnapshotRequest

    def gone_after_two(request: Any) -> Any:
        pieces.append(request.topics[0].partitions[0].position)
        if len(pieces) == 2:
            quorum.snapshot, quorum.log_start = (LogEnd(5_001, 1), data), 5_001
            del quorum.log[0]
        return answer(request)

    node.answer_FetchSnapshotRequest = gone_after_two
    seen.reach(5_001)
    assert pieces == [0, 100_000, 0, 100_000, 200_000, 300_000]
    assert sum(one.kind == "partition" for one in singly(seen.reported)) == 3_000


@pytest.mark.parametrize("damage", ["cut between batches", "cut inside a batch"])
def test_a_kraft_snapshot_that_is_cut_off_is_not_believed_and_a_whole_one_is(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any, damage: str
) -> None:
    data = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    *_, last = split(data)
    cut = data[: -len(last.data)] if damage == "cut between batches" else data[:-1]
    quorum.snapshot, quorum.log_start = (LogEnd(5_000, 1), cut), 5_000
    quorum.append(*(make_batch(at, 1, b"\x01\x14\x00\x00") for at in (5_000, 5_001, 5_002)))
    seen = watch()
    seen.until(lambda: any("ends before its footer" in line for line in seen.lines))
    seen.reported += seen.source.poll(seen.now)
    assert (seen.reported, seen.source.is_primary) == ([], False)
    quorum.snapshot = (LogEnd(5_002, 1), data)
    seen.until(lambda: bool(seen.reported))
    assert sum(one.kind == "partition" for one in singly(seen.reported)) == 3_000


@pytest.mark.parametrize("damage", ["a changed byte", "cut inside a batch"])
def test_a_damaged_kraft_snapshot_that_is_repaired_is_read_without_a_newer_one(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any, damage: str
) -> None:
    data = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    quorum.log_start = 5_000
    quorum.snapshot = (LogEnd(5_000, 1), changed if damage == "a changed byte" else data[:middle])
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00"))
    seen = watch()
    for _ in range(5):
        seen.reported += seen.source.poll(seen.now)
    assert (seen.reported, seen.source.is_primary) == ([], False)
    assert len(unread(seen)) == 1, "it is read again and again, and nothing of it again"
    (line,) = (line for line in seen.lines if "no data" in line)
    assert "the controller's KRaft snapshot before offset 5000 is damaged (" in line

    quorum.snapshot = (LogEnd(5_000, 1), data)
    seen.until(lambda: bool(seen.reported))

    assert sum(one.kind == "partition" for one in singly(seen.reported)) == 3_000
    assert seen.source.is_primary


def test_a_kraft_snapshot_that_is_refused_again_and_again_is_reported_and_the_log_is_not_current(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    data = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    quorum.snapshot, quorum.log_start = (LogEnd(5_000, 1), data), 5_000
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00"))
    quorum.snapshot_error = 56
    seen = watch()
    seen.until(lambda: any("does not give its KRaft snapshot at offset 5000" in line for line in seen.lines))
    seen.now = Micros(seen.now + 31_000_000)
    for _ in range(3):
        seen.reported += seen.source.poll(seen.now)
    assert (seen.reported, seen.source.is_primary) == ([], False)
    assert sum("KRaft snapshot" in line for line in seen.lines) == 1
    quorum.snapshot_error = 0
    seen.reach(5_000)
    assert seen.source.is_primary


def test_a_kraft_snapshot_that_is_announced_and_never_comes_is_reported_once(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    quorum.snapshot = (LogEnd(5_000, 1), gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes()))
    quorum.log_start = 5_000
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00"))

    def hang(_: Any) -> Any:
        raise struct.error("no answer")  # which closes the connection

    for node in quorum.nodes.values():
        node.answer_FetchSnapshotRequest = hang
    seen = watch()
    seen.until(lambda: sum("no controller serves the metadata log" in line for line in seen.lines) > 1)
    assert sum("does not give its KRaft snapshot at offset 5000 (127.0.0.1:" in line for line in seen.lines) == 1
    assert not seen.source.is_primary


def test_a_failure_while_records_are_applied_leaves_the_checkpoint_before_them(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    seen.source.acknowledge()
    seen.source._write_checkpoint()
    apply = ClusterImage.apply

    def fails(image: ClusterImage, *arguments: Any) -> list[Observation]:
        apply(image, *arguments)
        raise MemoryError

    monkeypatch.setattr(ClusterImage, "apply", fails)
    quorum.append(*frames[50:])
    with pytest.raises(MemoryError):
        seen.until(lambda: False)
    seen.source.close()
    monkeypatch.undo()
    assert watch().source._image.image_offset == frames[49].last_offset


def test_a_log_that_no_longer_reaches_back_gives_a_history_lost_snapshot_and_goes_on(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    first = watch()
    first.reach(191)
    first.source.acknowledge()
    first.source.close()
    quorum.snapshot = (LogEnd(5_000, 1), gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes()))
    quorum.log_start = 5_000
    quorum.log.clear()
    quorum.append(
        make_batch(5_000, 1, b"\x01\x09\x00" + base64.urlsafe_b64decode("yuffm7gfT0KLP7areFKowQ==") + b"\x00")
    )
    seen = watch()
    seen.reach(5_000)
    assert seen.snapshots() == [(SnapshotReason.HISTORY_LOST, 4_999)]
    assert [one.kind for one in seen.changes()] == ["topic_removed"]


def test_a_log_that_was_written_anew_is_read_from_its_start(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    first = watch()
    first.reach(191)
    first.source.acknowledge()
    first.source.close()
    quorum.log.clear()
    quorum.append(*frames[:100])
    seen = watch()
    seen.reach(frames[99].last_offset)
    assert seen.snapshots() == [(SnapshotReason.HISTORY_LOST, frames[99].last_offset)]
    seen.source.request_full_report()
    seen.until(lambda: len(seen.snapshots()) > 1)
    begins = [one for one in seen.reported if isinstance(one, SnapshotBegin)]
    assert [one.is_new_log for one in begins] == [True, False], "only once: the next report is of the same log"
    assert begins[0].occurred_not_after > first.reported[-1].occurred_not_after, "times order what offsets do not"


def test_a_snapshot_from_before_what_was_read_is_of_another_log(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    first = watch()
    first.reach(191)
    first.source.acknowledge()
    first.source.close()
    quorum.snapshot = (LogEnd(50, 9), gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes()))
    quorum.log_start = 500  # so that the answer is the snapshot's id
    quorum.log.clear()
    name = b"\x01\x09\x00" + base64.urlsafe_b64decode("yuffm7gfT0KLP7areFKowQ==") + b"\x00"
    seen = watch()
    seen.until(lambda: seen.source._image.image_offset == 49)
    quorum.log_start = 50
    quorum.append(make_batch(50, 9, name))
    seen.until(lambda: bool(seen.snapshots()))
    assert [(one.reason, one.is_new_log) for one in seen.reported if isinstance(one, SnapshotBegin)] == [
        (SnapshotReason.HISTORY_LOST, True)
    ]


@pytest.mark.parametrize("stop", [1, 40, 77, 120, 153])
def test_two_runs_around_a_checkpoint_tell_what_one_run_tells(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any, stop: int
) -> None:
    quorum.append(*frames[:1])
    first = watch()
    first.reach(0)
    quorum.append(*frames[1:stop])
    first.reach(quorum.end - 1)
    first.source.acknowledge()
    first.source.close()
    quorum.append(*frames[stop:])
    second = watch()
    second.until(lambda: second.source._image.image_offset == 191)
    assert expected(1) == first.changes() + second.changes()
    assert not second.snapshots()


def test_what_was_not_acknowledged_is_reported_again_after_a_crash(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    first = watch()
    first.reach(frames[49].last_offset)
    first.now += 6_000_000
    first.source.acknowledge()
    quorum.append(*frames[50:])
    first.reach(191)
    first.source.close()  # nobody acknowledged what followed
    second = watch()
    second.until(lambda: second.source._image.image_offset == 191)
    assert expected(50) == first.changes() == second.changes()


def test_a_collector_that_is_killed_right_after_its_first_report_goes_on_from_there(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:50])
    killed = watch()
    killed.reach(frames[49].last_offset)
    killed.source.acknowledge()
    quorum.append(*frames[50:])
    second = watch()
    second.until(lambda: second.source._image.image_offset == 191)
    assert expected(50) == second.changes()
    assert not second.snapshots()


def test_a_checkpoint_is_not_written_more_often_than_needed(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.json"
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    seen.source.acknowledge()
    assert json.loads(path.read_text())["checkpoint"]["image"]["offset"] == frames[49].last_offset
    quorum.append(*frames[50:60])
    seen.reach(frames[59].last_offset)
    seen.now += 4_900_000
    seen.source.acknowledge()
    assert json.loads(path.read_text())["checkpoint"]["image"]["offset"] == frames[49].last_offset
    seen.now += 100_000
    seen.source.acknowledge()
    assert json.loads(path.read_text())["checkpoint"]["image"]["offset"] == frames[59].last_offset
    written = path.stat().st_mtime_ns
    seen.now += 59_900_000
    seen.source.acknowledge()
    assert path.stat().st_mtime_ns == written


def test_before_the_first_snapshot_is_told_there_is_no_checkpoint(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], tmp_path: Path
) -> None:
    quorum.append(*frames)
    quorum.answer_bytes = 200
    seen = watch()
    assert not seen.source.poll(seen.now)
    seen.now += 600_000_000
    seen.source.acknowledge()
    seen.source.close()
    assert not (tmp_path / "checkpoint.json").exists()


def test_the_checkpoint_of_another_cluster_is_refused(watch: Any, tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "checkpoint.json", {"version": 1, "cluster_id": "another"})
    with pytest.raises(
        ConfigurationError, match=r"is of cluster another, but cluster\.bootstrap_servers leads to 4L6g3n"
    ):
        watch()


def test_the_checkpoint_of_another_version_of_the_program_is_refused(watch: Any, quorum: Any, tmp_path: Path) -> None:
    del quorum
    checkpoint.write(tmp_path / "checkpoint.json", {"version": 7})
    with pytest.raises(ConfigurationError, match=r"checkpoint\.json has version 7, and this program writes 1: run "):
        watch()


def framed(body: str) -> str:
    """What stands in the file of a checkpoint."""
    return f'{{"checksum":{zlib.crc32(body.encode())},"checkpoint":{body}}}'


@pytest.mark.parametrize(
    "content",
    [
        *("{", "{}", '{"version": 1, "cluster_id": "4L6g3nShT-eMCtK--X86sw"}', ""),
        *map(framed, ("{", "[]", "{}", '{"version": 1, "cluster_id": "4L6g3nShT-eMCtK--X86sw"}')),
    ],
)
def test_a_damaged_checkpoint_is_put_aside_and_the_log_is_read_anew(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], tmp_path: Path, content: str
) -> None:
    (tmp_path / "checkpoint.json").write_text(content)
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.HISTORY_LOST]
    assert (tmp_path / "checkpoint.json.damaged").read_text() == content
    assert ["the checkpoint is damaged (" in line for line in seen.lines].count(True) == 1


def test_a_checkpoint_in_which_any_byte_changed_is_damaged(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.json"
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    seen.source.acknowledge()
    seen.source.close()
    whole, dice = path.read_bytes(), Random(7)
    assert checkpoint.read(path, ClusterId("4L6g3nShT-eMCtK--X86sw")) is not None
    for _ in range(200):
        at = dice.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        with pytest.raises(checkpoint.DamagedCheckpoint):
            checkpoint.read(path, ClusterId("4L6g3nShT-eMCtK--X86sw"))


def test_a_periodic_snapshot_comes_when_it_is_due(quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]) -> None:
    quorum.append(*frames)
    seen = watch(snapshot_seconds=60.0)
    seen.reach(191)
    for _ in range(2):  # each within the time after which another source would have to take over
        seen.now += 29_500_000
        seen.reported += seen.source.poll(seen.now)
    assert len(seen.snapshots()) == 1
    seen.now += 1_000_000
    seen.reported += seen.source.poll(seen.now)
    seen.reported += seen.source.poll(seen.now)
    assert seen.snapshots() == [(SnapshotReason.START, 191), (SnapshotReason.PERIODIC, 191)]


def test_a_record_that_cannot_be_read_goes_to_quarantine_and_the_rest_goes_on(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    quorum.append(*frames[:50])
    seen = watch()
    seen.reach(frames[49].last_offset)
    at = quorum.end
    quorum.append(make_batch(at, 1, b"\x01\x63\x00\x00", b"\x01\x14\x00\x00"))
    seen.reach(at + 1)
    (payload,) = seen.source.take_undecodable()
    refused = json.loads(payload)
    assert {"v": 1, "kind": "undecodable", "metadata_offset": at, "raw": "016300"}.items() <= refused.items()
    assert refused["reason"] == "unknown metadata record type 99 version 0"
    assert not seen.source.take_undecodable()
    assert any("goes to quarantine" in line for line in seen.lines)


def test_a_damaged_batch_is_fetched_once_more_and_only_then_quarantined(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], expected: Any
) -> None:
    quorum.append(*frames[:60])
    seen = watch()
    seen.reach(frames[59].last_offset)
    quorum.append(frames[60]._replace(data=frames[60].data[:-1] + b"\xff"))
    seen.until(lambda: any("sent a corrupt batch" in line for line in seen.lines))
    quorum.log[60] = frames[60]  # it was the way, not the source
    quorum.append(*frames[61:])
    seen.reach(191)
    assert expected(60) == seen.changes()
    assert not seen.source.take_undecodable()


def test_a_batch_that_is_damaged_at_its_source_is_quarantined_and_nothing_is_reported_of_a_state_that_it_hides(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quiet = next(index for index, frame in enumerate(frames) if index > 60 and len(frame.data) < 80)
    quorum.append(*frames)
    quorum.log[quiet] = frames[quiet]._replace(data=frames[quiet].data[:-1] + b"\xff")
    seen = watch()
    seen.until(lambda: not seen.source.is_whole)
    (payload,) = seen.source.take_undecodable()
    assert "does not match its checksum" in json.loads(payload)["reason"]
    seen.source.poll(seen.now)
    assert seen.reported == []


def test_a_clock_that_is_set_back_delays_neither_a_report_nor_a_checkpoint(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    seen = watch(snapshot_seconds=60.0)
    seen.reach(191)
    seen.source.acknowledge()
    hours = 7_200_000_000
    seen.now, seen.set_back = Micros(seen.now - hours), -hours
    seen.now = Micros(seen.now + 61_000_000)
    seen.reported += seen.source.poll(seen.now)
    seen.source.acknowledge()
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.START, SnapshotReason.PERIODIC]
    assert seen.source._path.exists()


def test_a_log_without_new_records_is_fresh_as_long_as_controllers_say_that_it_has_none(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    """A cluster with ``metadata.max.idle.interval.ms`` of 0."""
    quorum.append(*frames)
    seen = watch(heartbeat_seconds=5.0)
    seen.reach(191)
    before = len(seen.reported)
    for _ in range(5):
        seen.now = Micros(seen.now + 5_000_000)
        seen.reported += seen.source.poll(seen.now)
    beats = seen.reported[before:]
    assert [(one.kind, one.metadata_offset, one.occurred_not_after) for one in beats] == [
        ("heartbeat", 191, seen.now - 15_000_000),
        ("heartbeat", 191, seen.now - 5_000_000),
    ]
    quorum.fetch_error = 6
    seen.now = Micros(seen.now + 25_000_000)
    seen.reported += seen.source.poll(seen.now)
    assert len(seen.reported) == before + 2, "nobody says so any more"


def test_a_record_of_a_time_that_is_to_come_silences_no_heartbeat(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    quorum.append(*frames)
    hour = 1_795_260_000_000 + 3_600_000
    quorum.append(make_batch(192, 1, b"\x01\x14\x00\x00", timestamp=hour))
    seen = watch(heartbeat_seconds=5.0)
    seen.reach(192)
    before = len(seen.reported)
    for at in range(193, 198):
        seen.now = Micros(seen.now + 5_000_000)
        quorum.append(make_batch(at, 1, b"\x01\x14\x00\x00", timestamp=1_795_260_000_000 + at))
        seen.reported += seen.source.poll(seen.now)
    assert [one.kind for one in seen.reported[before:]] == ["heartbeat"] * 3


def test_a_log_whose_permission_is_taken_away_is_not_current_and_reports_everything_when_it_is_given_back(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames[:100])
    seen = watch()
    assert not seen.source.is_primary
    seen.until(lambda: seen.source.is_primary and bool(seen.reported))
    quorum.fetch_error = 31
    seen.until(lambda: not seen.source.is_primary)
    assert "lacks ClusterAction" in seen.lines[-1]
    quorum.fetch_error = 0
    quorum.append(*frames[100:])
    seen.until(lambda: seen.source.is_primary)
    seen.now = Micros(seen.now + 12_000_000)
    seen.reported += seen.source.poll(seen.now)
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.START, SnapshotReason.PERIODIC]


def test_a_log_of_which_no_controller_answers_any_more_is_not_current_after_half_a_minute(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    quorum.fetch_error = 6
    for _ in range(3):
        with suppress(ConnectionRefused):
            seen.source.poll(seen.now)
    assert seen.source.is_primary, "an election is no silence"
    seen.now = Micros(seen.now + 31_000_000)
    assert not seen.source.is_primary
    quorum.fetch_error = 0
    seen.until(lambda: seen.source.is_primary)
    seen.now = Micros(seen.now + 12_000_000)
    seen.reported += seen.source.poll(seen.now)
    assert len(seen.snapshots()) == 2, "a poller may have taken over meanwhile"


def test_a_leader_that_commits_nothing_does_not_keep_the_log_fresh(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    """It has lost its majority, and before Kafka 3.7 it goes on to write and to answer."""
    quorum.append(*frames)
    seen = watch(heartbeat_seconds=5.0)
    seen.reach(191)
    before, quorum.high_watermark = len(seen.reported), 192
    for at in range(192, 202):
        seen.now = Micros(seen.now + 4_000_000)
        quorum.append(make_batch(at, 1, b"\x01\x14\x00\x00", timestamp=seen.now // 1_000))
        with suppress(ConnectionRefused):
            seen.reported += seen.source.poll(seen.now)
    assert [one.occurred_not_after for one in seen.reported[before:]] == [], "nobody knows that it is up to date"
    assert not seen.source.is_primary
    (lost,) = (line for line in seen.lines if line.startswith("lost the metadata log"))
    assert lost.endswith("leads the metadata quorum and commits nothing: it has no majority; looking for the leader")

    quorum.high_watermark = None
    seen.until(lambda: seen.source.is_primary)
    assert seen.source._image.image_offset == 201


def test_a_leader_that_commits_nothing_is_left_for_the_one_that_the_majority_has_elected(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    """The old leader is cut off from the others, and still answers who reaches it."""
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    isolated = seen.source._tail._controllers.target

    def as_before(node: Any, _: Any) -> Any:
        response = node.fetched(0)
        response.responses[0].partitions[0].high_watermark = 192
        return response if node.node_id == isolated else None

    quorum.high_watermark = 192
    quorum.append(make_batch(192, 1, b"\x01\x14\x00\x00", timestamp=seen.now // 1_000))
    seen.reported += seen.source.poll(seen.now)
    quorum.faults.extend([as_before] * 100)
    quorum.elect(isolated % 3 + 1, 2)
    quorum.log[-1] = in_epoch(2, quorum.log[-1])
    quorum.high_watermark = None
    seen.now = Micros(seen.now + 6_000_000)

    seen.until(lambda: seen.source._image.image_offset == 192)

    assert seen.source._tail._controllers.target == isolated % 3 + 1


def test_the_controllers_are_reached_by_the_listener_that_is_named(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    quorum.listeners = {"CONTROLLER": 1, "INTERNAL": None}
    seen = watch(controllers=ControllerAddresses("INTERNAL"))
    seen.reach(191)
    wrong = watch(controllers=ControllerAddresses("EXTERNAL"))
    with pytest.raises(
        ConnectionRefused, match=r"no controller has the listener 'EXTERNAL'.*they have CONTROLLER, INTER"
    ):
        wrong.source.poll(wrong.now)


def test_of_several_listeners_the_controllers_own_is_taken_in_whatever_order_they_come(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...]
) -> None:
    quorum.append(*frames)
    quorum.listeners = {"AUDIT": 1, "MY_CONTROLLERS": None, "ZONE": 1}
    watch().reach(191)


def test_controllers_whose_addresses_cannot_be_reached_are_read_at_those_that_are_configured(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    quorum.append(*frames)
    quorum.listeners = {"CONTROLLER": 1}
    quorum.versions = {55: 1}  # DescribeQuorum before Kafka 3.9, which gives no addresses
    by_node = {number: Address("127.0.0.1", node.port) for number, node in quorum.nodes.items()}
    seen = watch(controllers=ControllerAddresses(by_node=by_node))
    seen.reach(191)
    quorum.elect(3, 2)
    quorum.append(make_batch(192, 2, b"\x01\x14\x00\x00"))
    seen.reach(192)


def unread(seen: Watch) -> list[str]:
    return [line for line in seen.lines if "no data from the metadata log" in line]


def test_after_a_partition_record_of_a_newer_version_nothing_is_reported_until_a_newer_kraft_snapshot(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], fixtures: Path, make_batch: Any
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    seen.source.acknowledge()
    before = len(seen.reported)
    quorum.append(make_batch(192, 1, b"\x01\x05\x03" + bytes(21), timestamp=1_795_260_000_000))
    quorum.append(
        *(make_batch(at, 1, b"\x01\x14\x00\x00", timestamp=1_795_260_000_000 + at * 10_000) for at in range(193, 200))
    )
    seen.until(lambda: seen.source._tail.position.applied.offset == 200)
    seen.now = Micros(seen.now + 7_200_000_000)  # a periodic report and a checkpoint would be due
    seen.reported += seen.source.poll(seen.now)
    seen.source.acknowledge()
    assert seen.reported[before:] == []
    (line,) = unread(seen)
    assert line.startswith(
        "no data from the metadata log: its record at offset 192 cannot be read (PartitionChange version 3, this "
        "program reads up to 2); upgrade isrwatch if Kafka was upgraded."
    )
    (payload,) = seen.source.take_undecodable()
    assert json.loads(payload)["metadata_offset"] == 192
    older = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    quorum.snapshot = (LogEnd(100, 1), older)
    seen.reported += seen.source.poll(seen.now)
    assert seen.reported[before:] == [], "a snapshot from before the record does not contain what it changed"
    quorum.snapshot = (LogEnd(195, 1), older)
    seen.until(lambda: len(seen.reported) > before)
    assert seen.snapshots()[1:] == [(SnapshotReason.HISTORY_LOST, 199)]
    assert seen.source.is_whole
    assert len(unread(seen)) == 1
    seen.source.acknowledge()
    seen.source.close()
    assert watch().source._image.image_offset == 199, "the checkpoint goes on behind the snapshot"


def test_a_program_that_stops_while_the_state_is_unknown_continues_before_the_record_that_it_could_not_read(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    seen.source.acknowledge()
    seen.source._write_checkpoint()
    quorum.append(make_batch(192, 1, b"\x01\x00\x05\x00"))
    seen.until(lambda: not seen.source.is_whole)
    seen.source.acknowledge()
    seen.source.close()
    assert watch().source._image.image_offset == 191


def test_a_kraft_snapshot_that_cannot_be_read_either_is_loaded_once_and_a_newer_one_is_waited_for(
    quorum: Any, watch: Any, fixtures: Path, make_batch: Any
) -> None:
    whole = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    *_, footer = split(whole)
    newer = make_batch(3_043, 1, b"\x01\x03\x03\x00").data
    quorum.snapshot = (LogEnd(5_000, 1), whole[: -len(footer.data)] + newer + footer.data)
    quorum.log_start = 5_000
    quorum.append(make_batch(5_000, 1, b"\x01\x14\x00\x00"))
    loaded: list[int] = []
    answer = quorum.nodes[1].answer_FetchSnapshotRequest

    def counted(request: Any) -> Any:
        loaded.append(request.topics[0].partitions[0].snapshot_id.end_offset)
        return answer(request)

    quorum.nodes[1].answer_FetchSnapshotRequest = counted
    quorum.snapshot_bytes = 1_000_000
    seen = watch()
    seen.until(lambda: seen.source._tail.position.applied.offset == 5_001)
    for _ in range(3):
        assert seen.source.poll(seen.now) == []
    assert (len(unread(seen)), loaded) == (1, [5_000])
    quorum.snapshot = (LogEnd(5_001, 1), whole)
    seen.until(lambda: bool(seen.reported))
    assert seen.snapshots() == [(SnapshotReason.START, 5_000)]


def feature(name: bytes, level: int) -> bytes:
    return b"\x01\x0c\x00" + bytes([len(name) + 1]) + name + struct.pack(">h", level) + b"\x00"


def test_a_newer_metadata_version_is_warned_of_once_before_its_records_come(
    quorum: Any, watch: Any, frames: tuple[EncodedBatch, ...], make_batch: Any
) -> None:
    quorum.append(*frames)
    seen = watch()
    seen.reach(191)
    assert not any("newer Kafka" in line for line in seen.lines)
    features = b"\x02" + bytes([17]) + b"metadata.version" + struct.pack(">hh", 7, 31) + b"\x00"
    controller = b"\x01\x1b\x00" + struct.pack(">i", 102) + bytes(16) + b"\x00" + b"\x01" + features + b"\x00"
    quorum.append(make_batch(192, 1, controller))
    seen.until(lambda: seen.source._image.image_offset == 192)
    (warning,) = (line for line in seen.lines if "newer Kafka" in line)
    assert "(metadata.version 31) than this program (30): upgrade isrwatch before" in warning
    quorum.append(
        make_batch(193, 1, feature(b"metadata.version", 31)), make_batch(194, 1, feature(b"metadata.version", 32))
    )
    seen.until(lambda: seen.source._image.image_offset == 194)
    assert sum("newer Kafka" in line for line in seen.lines) == 2
    assert seen.source._image.metadata_version == 32
    assert not seen.source.take_undecodable()


def test_an_address_where_nobody_listens_is_one_sentence(quorum: Any, tmp_path: Path) -> None:
    for node in quorum.nodes.values():
        node.stop()
    with pytest.raises(
        ConnectionRefused, match=r"^no broker of cluster\.bootstrap_servers responds: 127\.0\.0\.1:\d+ cannot"
    ):
        Watch(quorum, tmp_path / "checkpoint.json")


def test_the_checkpoint_lies_below_the_bus(tmp_path: Path) -> None:
    assert checkpoint_path(tmp_path, NAME) == tmp_path / "checkpoints" / "metadata_log-test.json"
