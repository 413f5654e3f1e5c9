"""The metadata-log source against a quorum in threads: what it tells, and what a checkpoint is worth."""

from __future__ import annotations

import base64
import errno
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation, PartitionObserved, SnapshotBegin, SnapshotReason
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources import checkpoint
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, split
from streaming.sources.metadata_log.image import ClusterImage
from streaming.sources.metadata_log.messages import FetchResponseFields, LogEnd
from streaming.sources.metadata_log.opening import checkpoint_path
from streaming.sources.metadata_log.quorum import AS_ADVERTISED, Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.metadata_log.tail import Position
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.blocks import singly
from tests.examples import examples
from tests.sources.metadata_log.conftest import CLUSTER_ID, FRAMES, NO_OP, SNAPSHOT, Hang, Node, batch

NAME = "metadata_log:test"
PATIENCE = 30.0
REMOVAL = b"\x01\x09\x00" + base64.urlsafe_b64decode("yuffm7gfT0KLP7areFKowQ==") + b"\x00"  # of a topic


class Watch:
    """A source on a quorum, with a clock that stands still until it is moved, and everything that it reported."""

    def __init__(
        self, quorum: Any, path: Path, controllers: ControllerAddresses = AS_ADVERTISED, **settings: float
    ) -> None:
        dial = dialer(Security())
        self.quorum = quorum
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
            report=self.lines.append,
            clock=lambda: self.now,
            timer=lambda: Micros(self.now - self.set_back),
            **{"heartbeat_seconds": 5.0, "snapshot_seconds": 3600.0, "resync_seconds": 0.0, **settings},
        )
        self.tail = self.source._tail

    def poll(self, later_seconds: float = 0) -> None:
        self.now = Micros(self.now + round(later_seconds * 1_000_000))
        self.reported += self.source.poll(self.now)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.lines
            try:
                self.poll()
            except ConnectionRefused as refusal:
                self.lines.append(str(refusal))

    def until_line(self, part: str) -> None:
        self.until(lambda: self.count(part) > 0)

    def reach(self, offset: int | None = None) -> None:
        """Poll up to an offset, or to the end of the log, until something was reported."""
        end = self.quorum.end - 1 if offset is None else offset
        self.until(lambda: self.offset >= end and bool(self.reported))

    def follow(self, *frames: EncodedBatch) -> None:
        """Append to the log, and poll up to its end."""
        self.quorum.append(*frames)
        self.reach()

    def end(self) -> None:
        """End as a program that has published everything."""
        self.source.acknowledge()
        self.source.close()

    @property
    def offset(self) -> int:
        return self.source._image.image_offset

    def count(self, part: str) -> int:
        return sum(part in line for line in self.lines)

    def changes(self) -> list[Observation]:
        """Give what was reported outside of snapshots, without what may differ from run to run."""
        return essence(self.reported)

    def partition_count(self) -> int:
        return sum(one.kind == "partition" for one in singly(self.reported))

    def controllers(self) -> list[tuple[int, int]]:
        return [(one.controller, one.controller_epoch) for one in self.reported if one.kind == "controller"]

    def snapshots(self) -> list[tuple[SnapshotReason, int]]:
        return [(one.reason, one.metadata_offset or 0) for one in self.reported if isinstance(one, SnapshotBegin)]


def essence(reported: list[Observation]) -> list[Observation]:
    inside, found = False, []
    for one in reported:
        inside = one.kind == "snapshot_begin" or (inside and one.kind != "snapshot_end")
        if not inside and one.kind not in {"heartbeat", "snapshot_end"}:
            found.append(replace(one, collected_at=Micros(0)))
    return found


def in_epoch(epoch: int, *frames: EncodedBatch) -> list[EncodedBatch]:
    """Let batches be written in another raft epoch, which their checksums do not cover."""
    written = struct.pack(">i", epoch)
    return [frame._replace(epoch=epoch, data=frame.data[:12] + written + frame.data[16:]) for frame in frames]


@pytest.fixture
def watch(quorum: Any, tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    """Watch the quorum, a log up to its end if one is given; the checkpoint file is the same each time."""
    opened: list[Watch] = []

    def make(log: Iterable[EncodedBatch] = (), **settings: Any) -> Watch:
        opened.append(Watch(quorum, tmp_path / "checkpoint.json", **settings))
        if log:
            opened[-1].follow(*log)
        return opened[-1]

    yield make
    for one in opened:
        one.tail.close()


def expected(start: int) -> list[Observation]:
    """Give what an image fed with the decoded log itself tells from one batch on."""
    image = ClusterImage(cluster_id=ClusterId(CLUSTER_ID), cluster="test", source=NAME)
    image.load(map(decode, FRAMES[:start]))
    return essence([one for frame in FRAMES[start:] for one in image.apply(decode(frame), Micros(0))])


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_there_is_one_snapshot_and_what_follows_is_reported_however_the_log_is_cut(
    quorum: Any, tmp_path_factory: Any, data: st.DataObject
) -> None:
    start = data.draw(st.integers(min_value=1, max_value=len(FRAMES)))
    cuts = sorted(data.draw(st.lists(st.integers(min_value=start, max_value=len(FRAMES)), max_size=6)))
    quorum.answer_bytes = data.draw(st.integers(min_value=1, max_value=4_000))
    quorum.log.clear()
    seen = Watch(quorum, tmp_path_factory.mktemp("cut") / "checkpoint.json")
    for low, high in zip([0, start, *cuts], [start, *cuts, len(FRAMES)], strict=True):
        seen.follow(*FRAMES[low:high])
    seen.tail.close()
    assert seen.snapshots() == [(SnapshotReason.START, FRAMES[start - 1].last_offset)]
    assert expected(start) == seen.changes()


def test_what_is_not_committed_is_held_back(quorum: Any, watch: Any) -> None:
    quorum.append(*FRAMES)
    quorum.high_watermark = FRAMES[60].base_offset
    seen = watch()
    seen.reach(FRAMES[59].last_offset)
    for _ in range(3):
        seen.poll()
    assert seen.offset == FRAMES[59].last_offset
    assert not seen.changes()
    quorum.high_watermark = FRAMES[60].last_offset + 1
    seen.reach(FRAMES[60].last_offset)
    quorum.high_watermark = None
    seen.reach()
    assert expected(60) == seen.changes()


@pytest.mark.parametrize("version", [18, 17, 13])
def test_an_older_controller_is_read_as_well_and_one_of_version_18_is_told_the_own_high_watermark(
    quorum: Any, watch: Any, version: int
) -> None:
    quorum.versions[1] = version
    seen = watch(FRAMES[:50])
    seen.follow(*FRAMES[50:])
    assert expected(50) == seen.changes()
    seen.poll()
    assert {request.API_VERSION for request in quorum.requests} == {version}
    assert version < 18 or quorum.requests[-1].topics[0].partitions[0].high_watermark == 192


def test_uncommitted_batches_that_a_new_leader_does_not_have_are_dropped(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES[:80])
    quorum.high_watermark = at = FRAMES[80].base_offset
    quorum.append(batch(at, 1, b"\x01\x09\x00" + bytes(16) + b"\x00", NO_OP))
    seen.until(lambda: seen.tail.position.end.offset == at + 2)
    quorum.log.pop()
    quorum.elect(leader=2, epoch=2)
    quorum.high_watermark = None
    seen.follow(*in_epoch(2, *FRAMES[80:]))
    assert expected(80) == seen.changes()
    assert seen.tail.position.applied == LogEnd(192, 2)


def test_of_uncommitted_batches_those_before_the_divergence_are_kept() -> None:
    written = [batch(at, epoch, NO_OP) for at, epoch in enumerate([1, 1, 1, 1, 2])]
    position = Position()
    position.receive(FetchResponseFields(high_watermark=0, records=b"".join(one.data for one in written)))
    assert position.end == LogEnd(5, 2)
    position.receive(FetchResponseFields(diverging=LogEnd(3, 1)))
    assert (position.applied, position.end) == (LogEnd(0, 0), LogEnd(3, 1))
    released = position.receive(FetchResponseFields(high_watermark=3)).batches
    assert [one.base_offset for one in released] == [0, 1, 2]


def test_a_controller_may_have_the_id_0(quorum: Any, watch: Any) -> None:
    quorum.nodes[0] = Node(quorum, 0)
    quorum.elect(leader=0, epoch=1)
    seen = watch(FRAMES)
    assert seen.lines[-1].startswith("reading the metadata log from controller 0 ")


def test_connecting_waits_for_a_leader_as_long_as_it_may(quorum: Any, watch: Any) -> None:
    def hang(*_: Any) -> None:
        raise Hang

    seen = watch()
    quorum.append(*FRAMES)
    quorum.faults.extend([hang] * len(quorum.nodes))
    quorum.quorum_error = 5
    threading.Timer(0.2, setattr, (quorum, "quorum_error", 0)).start()
    seen.source.connect(seconds=PATIENCE)
    seen.reach()
    assert not quorum.faults


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_change_of_leader_is_followed_by_what_the_old_one_tells_or_the_others(
    quorum: Any, watch: Any, *, is_dead: bool
) -> None:
    seen = watch(FRAMES[:50])
    if is_dead:
        quorum.nodes[1].stop()
        for _ in range(2):
            seen.poll()  # the followers still name node 1 for a while
    quorum.elect(leader=3, epoch=2)
    seen.follow(*in_epoch(2, *FRAMES[50:]))
    assert expected(50) == seen.changes()
    assert seen.count("lost the metadata log") == 1
    assert seen.lines[-1].startswith("reading the metadata log from controller 3 ")


def test_disconnections_in_the_middle_lose_and_double_nothing(quorum: Any, watch: Any) -> None:
    quorum.answer_bytes = 300
    seen = watch(FRAMES[:50])
    quorum.append(*FRAMES[50:])
    for target in range(60, 192, 30):
        seen.reach(target)
        quorum.nodes[1].disconnect()
    seen.reach()
    assert expected(50) == seen.changes()


@pytest.mark.parametrize("error", [74, 75, 42, 3, -1])
def test_an_error_is_answered_by_a_pause_and_another_question(quorum: Any, watch: Any, error: int) -> None:
    seen = watch(FRAMES[:50])
    quorum.fetch_error = error
    pauses: list[float] = []
    seen.tail._pause = pauses.append
    for _ in range(4):
        seen.poll()
    assert len(pauses) == 4
    assert pauses == sorted(pauses)
    assert all(0.05 <= pause <= 0.5 for pause in pauses)
    quorum.fetch_error = 0
    seen.follow(*FRAMES[50:])
    assert expected(50) == seen.changes()


def test_controllers_that_all_fail_are_reported_once_a_round(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES)
    quorum.fetch_error = 3
    seen.tail._pause = lambda _: None
    for _ in range(6):
        assert not seen.source.poll(seen.now)
    sentence = r"^no controller serves the metadata log: 127\.0\.0\.1:\d+ responds with UNKNOWN"
    with pytest.raises(ConnectionRefused, match=sentence):
        seen.poll()


def test_a_missing_permission_is_one_sentence_that_names_it(quorum: Any, watch: Any) -> None:
    quorum.append(*FRAMES)
    quorum.fetch_error = 31
    sentence = r'lacks ClusterAction on the cluster: .* \(collect\.primary_source = "poll" does without\)'
    with pytest.raises(ConnectionRefused, match=sentence):
        watch().source.connect(seconds=0)
    quorum.fetch_error, quorum.quorum_error = 0, 31
    with pytest.raises(ConnectionRefused, match=r"lacks Describe on the cluster: the controllers' addresses"):
        watch().source.connect(seconds=0)


def test_what_connecting_brought_is_not_lost(quorum: Any, watch: Any) -> None:
    quorum.append(*FRAMES[:50])
    seen = watch()
    seen.source.connect(seconds=0)
    seen.reach()
    seen.follow(*FRAMES[50:])
    assert expected(50) == seen.changes()


def test_a_start_on_a_snapshot_tells_its_partitions_and_what_the_log_adds(quorum: Any, watch: Any) -> None:
    quorum.compact(5_000)
    seen = watch([batch(5_000, 1, NO_OP, timestamp=1_795_249_930_000)])
    assert seen.snapshots() == [(SnapshotReason.START, 5_000)]
    partitions = [one for one in singly(seen.reported) if one.kind == "partition"]
    assert len(partitions) == 3_000
    assert {one.occurred_not_after for one in partitions} == {1_795_249_930_000_000}
    assert seen.controllers() == [(1, 1)]


def test_a_snapshot_from_before_an_election_does_not_guess_who_leads(quorum: Any, watch: Any) -> None:
    quorum.compact(5_000)
    quorum.elect(leader=2, epoch=2)
    quorum.append(batch(5_000, 2, struct.pack(">i", 2), attributes=0x20), batch(5_001, 2, NO_OP))
    quorum.high_watermark = 5_000
    seen = watch()
    seen.reach(4_999)
    assert not seen.controllers()
    quorum.high_watermark = None
    seen.reach()
    assert seen.controllers() == [(2, 2)]


def test_a_snapshot_that_is_gone_in_the_middle_is_asked_for_again(quorum: Any, watch: Any) -> None:
    quorum.compact(5_000)
    node, pieces = quorum.nodes[1], []
    answer = node.answer_FetchSnapshotRequest

    def gone_after_two(request: Any) -> Any:
        pieces.append(request.topics[0].partitions[0].position)
        if len(pieces) == 2:
            quorum.compact(5_001)
            del quorum.log[0]
        return answer(request)

    node.answer_FetchSnapshotRequest = gone_after_two
    seen = watch([batch(5_000, 1, NO_OP), batch(5_001, 1, NO_OP)])
    assert pieces == [0, 100_000, 0, 100_000, 200_000, 300_000]
    assert seen.partition_count() == 3_000


MIDDLE = len(SNAPSHOT) // 2
DAMAGED = {
    "cut between batches": SNAPSHOT[: -len([*split(SNAPSHOT)][-1].data)],
    "cut inside the last batch": SNAPSHOT[:-1],
    "cut in the middle": SNAPSHOT[:MIDDLE],
    "a changed byte": SNAPSHOT[:MIDDLE] + bytes([SNAPSHOT[MIDDLE] ^ 1]) + SNAPSHOT[MIDDLE + 1 :],
}


@pytest.mark.parametrize(("damage", "repaired_at"), zip(DAMAGED, (5_000, 5_002, 5_000, 5_002), strict=True))
def test_a_damaged_kraft_snapshot_is_not_believed_and_is_read_once_it_or_a_newer_one_is_whole(
    quorum: Any, watch: Any, damage: str, repaired_at: int
) -> None:
    quorum.compact(5_000, snapshot=DAMAGED[damage])
    quorum.append(*(batch(at, 1, NO_OP) for at in (5_000, 5_001, 5_002)))
    seen = watch()
    for _ in range(3):
        seen.poll()
    assert (seen.reported, seen.source.is_primary) == ([], False)
    (line,) = unread(seen)  # it is read again and again, and nothing of it again
    assert "the controller's KRaft snapshot before offset 5000 is damaged (" in line
    assert ("ends before its footer" in line) == ("cut" in damage)

    quorum.snapshot = (LogEnd(repaired_at, 1), SNAPSHOT)
    seen.until(lambda: bool(seen.reported))

    assert seen.partition_count() == 3_000
    assert seen.source.is_primary


def test_a_kraft_snapshot_that_is_always_refused_is_reported_and_is_not_current(quorum: Any, watch: Any) -> None:
    quorum.compact(5_000)
    quorum.append(batch(5_000, 1, NO_OP))
    quorum.snapshot_error = 56
    seen = watch()
    seen.until_line("does not give its KRaft snapshot at offset 5000")
    for later_seconds in (31, 0, 0):
        seen.poll(later_seconds)
    assert (seen.reported, seen.source.is_primary) == ([], False)
    assert seen.count("KRaft snapshot") == 1
    quorum.snapshot_error = 0
    seen.reach()
    assert seen.source.is_primary


def test_a_kraft_snapshot_that_is_announced_and_never_comes_is_reported_once(quorum: Any, watch: Any) -> None:
    quorum.compact(5_000)
    quorum.append(batch(5_000, 1, NO_OP))

    def hang(_: Any) -> Any:
        raise struct.error("no answer")  # which closes the connection

    for node in quorum.nodes.values():
        node.answer_FetchSnapshotRequest = hang
    seen = watch()
    seen.until(lambda: seen.count("no controller serves the metadata log") > 1)
    assert seen.count("does not give its KRaft snapshot at offset 5000 (127.0.0.1:") == 1
    assert not seen.source.is_primary


def test_a_failure_while_records_are_applied_moves_no_checkpoint(watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(FRAMES[:50])
    seen.source.acknowledge()
    apply = ClusterImage.apply

    def fails(image: ClusterImage, *arguments: Any) -> list[Observation]:
        apply(image, *arguments)
        raise MemoryError

    monkeypatch.setattr(ClusterImage, "apply", fails)
    with pytest.raises(MemoryError):
        seen.follow(*FRAMES[50:])
    seen.source.close()
    monkeypatch.undo()
    assert watch().offset == FRAMES[49].last_offset


def test_a_log_that_no_longer_reaches_back_gives_a_history_lost_snapshot_and_goes_on(quorum: Any, watch: Any) -> None:
    watch(FRAMES).end()
    quorum.compact(5_000)
    quorum.log.clear()
    seen = watch([batch(5_000, 1, REMOVAL)])
    assert seen.snapshots() == [(SnapshotReason.HISTORY_LOST, 4_999)]
    assert [one.kind for one in seen.changes()] == ["topic_removed"]


def test_a_log_that_was_written_anew_is_read_from_its_start(quorum: Any, watch: Any) -> None:
    first = watch(FRAMES)
    first.end()
    quorum.log.clear()
    seen = watch(FRAMES[:100])
    assert seen.snapshots() == [(SnapshotReason.HISTORY_LOST, FRAMES[99].last_offset)]
    seen.source.request_full_report()
    seen.until(lambda: len(seen.snapshots()) > 1)
    begins = [one for one in seen.reported if isinstance(one, SnapshotBegin)]
    assert [one.is_new_log for one in begins] == [True, False], "only once: the next report is of the same log"
    assert begins[0].occurred_not_after > first.reported[-1].occurred_not_after, "times order what offsets do not"


def test_a_snapshot_from_before_what_was_read_is_of_another_log(quorum: Any, watch: Any) -> None:
    watch(FRAMES).end()
    quorum.compact(50, epoch=9)
    quorum.log_start = 500  # so that the answer is the snapshot's id
    quorum.log.clear()
    seen = watch()
    seen.until(lambda: seen.offset == 49)
    quorum.log_start = 50
    seen.follow(batch(50, 9, REMOVAL))
    begins = [(one.reason, one.is_new_log) for one in seen.reported if isinstance(one, SnapshotBegin)]
    assert begins == [(SnapshotReason.HISTORY_LOST, True)]


@pytest.mark.parametrize("stop", [1, 40, 77, 120, 153])
def test_two_runs_around_a_checkpoint_tell_what_one_run_tells(quorum: Any, watch: Any, stop: int) -> None:
    first = watch(FRAMES[:1])
    first.follow(*FRAMES[1:stop])
    first.end()
    quorum.append(*FRAMES[stop:])
    second = watch()
    second.until(lambda: second.offset == 191)
    assert expected(1) == first.changes() + second.changes()
    assert not second.snapshots()


def test_what_was_not_acknowledged_is_reported_again_after_a_crash(watch: Any) -> None:
    first = watch(FRAMES[:50])
    first.now += 6_000_000
    first.source.acknowledge()
    first.follow(*FRAMES[50:])
    first.source.close()  # nobody acknowledged what followed
    second = watch()
    second.until(lambda: second.offset == 191)
    assert expected(50) == first.changes() == second.changes()


def test_a_collector_that_is_killed_right_after_its_first_report_goes_on_from_there(quorum: Any, watch: Any) -> None:
    watch(FRAMES[:50]).source.acknowledge()
    quorum.append(*FRAMES[50:])
    second = watch()
    second.until(lambda: second.offset == 191)
    assert expected(50) == second.changes()
    assert not second.snapshots()


def test_a_program_that_stops_writes_what_was_acknowledged(watch: Any, tmp_path: Path) -> None:
    seen = watch(FRAMES[:50])
    seen.source.acknowledge()
    seen.follow(*FRAMES[50:])
    seen.end()
    written = json.loads((tmp_path / "checkpoint.json").read_text())
    assert written["checkpoint"]["image"]["offset"] == FRAMES[-1].last_offset


def test_a_checkpoint_is_not_written_more_often_than_needed(watch: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"

    def written(later_seconds: float) -> int:
        seen.now += round(later_seconds * 1_000_000)
        seen.source.acknowledge()
        offset: int = json.loads(path.read_text())["checkpoint"]["image"]["offset"]
        return offset

    seen = watch(FRAMES[:50])
    assert written(0) == FRAMES[49].last_offset
    seen.follow(*FRAMES[50:60])
    assert written(4.9) == FRAMES[49].last_offset
    assert written(0.1) == FRAMES[59].last_offset
    last = path.stat().st_mtime_ns
    written(59.9)
    assert path.stat().st_mtime_ns == last


def test_a_disk_that_is_full_for_a_checkpoint_ends_nothing_and_is_said_once(
    watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, path = watch(FRAMES[:50]), tmp_path / "checkpoint.json"
    seen.source.acknowledge()
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for frames in (FRAMES[50:60], FRAMES[60:70]):
        seen.follow(*frames)
        seen.now += 10_000_000
        seen.source.acknowledge()
    seen.source.close()
    assert seen.count("No space left on device; free space, repair the disk, or point bus.directory") == 1
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    monkeypatch.undo()
    seen.source.close()
    assert seen.count("writes the checkpoint ") == 1
    assert path.read_bytes() != before


def test_before_the_first_snapshot_is_told_there_is_no_checkpoint(quorum: Any, watch: Any, tmp_path: Path) -> None:
    quorum.append(*FRAMES)
    quorum.answer_bytes = 200
    seen = watch()
    assert not seen.source.poll(seen.now)
    seen.now += 600_000_000
    seen.end()
    assert not (tmp_path / "checkpoint.json").exists()


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"version": 1, "cluster_id": "another"}, "is of cluster another, but cluster.bootstrap_servers leads to 4L6g"),
        ({"version": 7}, r"checkpoint\.json has version 7, and this program writes 1: run "),
    ],
)
def test_the_checkpoint_of_another_cluster_or_version_of_the_program_is_refused(
    watch: Any, tmp_path: Path, document: dict[str, Any], sentence: str
) -> None:
    checkpoint.write(tmp_path / "checkpoint.json", document)
    with pytest.raises(ConfigurationError, match=sentence):
        watch()


def framed(body: str) -> str:
    """What stands in the file of a checkpoint."""
    return f'{{"checksum":{zlib.crc32(body.encode())},"checkpoint":{body}}}'


ALMOST = f'{{"version": 1, "cluster_id": "{CLUSTER_ID}"}}'


@pytest.mark.parametrize("content", ["{", "{}", ALMOST, "", *map(framed, ("{", "[]", "{}", ALMOST))])
def test_a_damaged_checkpoint_is_put_aside_and_the_log_is_read_anew(watch: Any, tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint.json").write_text(content)
    seen = watch(FRAMES)
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.HISTORY_LOST]
    assert (tmp_path / "checkpoint.json.damaged").read_text() == content
    assert seen.count("the checkpoint is damaged (") == 1


def test_a_checkpoint_in_which_any_byte_changed_is_damaged(watch: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    watch(FRAMES).end()
    whole, dice = path.read_bytes(), Random(7)
    assert checkpoint.read(path, ClusterId(CLUSTER_ID)) is not None
    for _ in range(200):
        at = dice.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        with pytest.raises(checkpoint.DamagedCheckpoint):
            checkpoint.read(path, ClusterId(CLUSTER_ID))


def test_a_periodic_snapshot_comes_when_it_is_due(watch: Any) -> None:
    seen = watch(FRAMES, snapshot_seconds=60.0)
    for _ in range(2):  # each within the time after which another source would have to take over
        seen.poll(29.5)
    assert len(seen.snapshots()) == 1
    seen.poll(1)
    seen.poll()
    assert seen.snapshots() == [(SnapshotReason.START, 191), (SnapshotReason.PERIODIC, 191)]


def test_a_record_that_cannot_be_read_goes_to_quarantine_and_the_rest_goes_on(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES[:50])
    at = quorum.end
    seen.follow(batch(at, 1, b"\x01\x63\x00\x00", b"\x01\x62\x00\x00", NO_OP))
    payload, another = seen.source.take_undecodable()
    refused = json.loads(payload)
    assert json.loads(another)["metadata_offset"] == at + 1
    assert {"v": 1, "kind": "undecodable", "metadata_offset": at, "raw": "016300"}.items() <= refused.items()
    assert refused["reason"] == "unknown metadata record type 99 version 0: upgrade isrwatch"
    assert not seen.source.take_undecodable()
    record = f"the metadata record at offset {at} goes to quarantine: {refused['reason']}; 1 more in its batch"
    assert seen.count(record) == seen.count("goes to quarantine") == 1


def test_a_damaged_batch_is_fetched_once_more_and_only_then_quarantined(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES[:60])
    quorum.append(FRAMES[60]._replace(data=FRAMES[60].data[:-1] + b"\xff"))
    seen.until_line("sent a corrupt batch")
    quorum.log[60] = FRAMES[60]  # it was the way, not the source
    seen.follow(*FRAMES[61:])
    assert expected(60) == seen.changes()
    assert not seen.source.take_undecodable()


def test_of_a_state_that_a_batch_damaged_at_its_source_hides_nothing_is_reported(quorum: Any, watch: Any) -> None:
    quiet = next(index for index, frame in enumerate(FRAMES) if index > 60 and len(frame.data) < 80)
    quorum.append(*FRAMES)
    quorum.log[quiet] = FRAMES[quiet]._replace(data=FRAMES[quiet].data[:-1] + b"\xff")
    seen = watch()
    seen.until(lambda: not seen.source.is_whole)
    (payload,) = seen.source.take_undecodable()
    assert "does not match its checksum" in json.loads(payload)["reason"]
    seen.poll()
    assert seen.reported == []


def test_a_clock_that_is_set_back_delays_neither_a_report_nor_a_checkpoint(watch: Any, tmp_path: Path) -> None:
    seen = watch(FRAMES, snapshot_seconds=60.0)
    seen.source.acknowledge()
    (tmp_path / "checkpoint.json").unlink()
    hours = 7_200_000_000
    seen.now, seen.set_back = Micros(seen.now - hours), -hours
    seen.poll(61)
    seen.source.acknowledge()
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.START, SnapshotReason.PERIODIC]
    assert (tmp_path / "checkpoint.json").exists()


def test_a_log_without_new_records_is_fresh_while_controllers_say_that_it_has_none(quorum: Any, watch: Any) -> None:
    """A cluster with ``metadata.max.idle.interval.ms`` of 0."""
    seen = watch(FRAMES)
    before = len(seen.reported)
    for _ in range(5):
        seen.poll(5)
    beats = seen.reported[before:]
    assert [(one.kind, one.metadata_offset, one.occurred_not_after) for one in beats] == [
        ("heartbeat", 191, seen.now - 15_000_000),
        ("heartbeat", 191, seen.now - 5_000_000),
    ]
    quorum.fetch_error = 6
    seen.poll(25)
    assert len(seen.reported) == before + 2, "nobody says so any more"


def test_a_record_of_a_time_that_is_to_come_silences_no_heartbeat(quorum: Any, watch: Any) -> None:
    hour = 1_795_260_000_000 + 3_600_000
    seen = watch([*FRAMES, batch(192, 1, NO_OP, timestamp=hour)])
    before = len(seen.reported)
    for at in range(193, 198):
        quorum.append(batch(at, 1, NO_OP, timestamp=1_795_260_000_000 + at))
        seen.poll(5)
    assert [one.kind for one in seen.reported[before:]] == ["heartbeat"] * 3


@pytest.mark.parametrize("hours", [-3, 0])
def test_data_is_fresh_and_dated_by_the_clock_here_where_that_of_the_controller_is_behind(
    quorum: Any, watch: Any, hours: int
) -> None:
    seen = watch(FRAMES)
    for at in range(192, 204):
        seen.now = Micros(seen.now + 4_000_000)
        quorum.append(batch(at, 1, NO_OP, timestamp=seen.now // 1_000 + hours * 3_600_000 - 30))
        seen.until(lambda at=at: seen.offset >= at)
        seen.poll()
    ages = [seen.now - one.occurred_not_after for one in seen.reported]
    assert ages[-1] < 6_000_000
    topic_id = next(one.topic_id for one in singly(seen.reported) if isinstance(one, PartitionObserved))
    removal = REMOVAL[:3] + base64.urlsafe_b64decode(topic_id + "==") + b"\0"
    quorum.append(batch(204, 1, removal, timestamp=seen.now // 1_000 + hours * 3_600_000 + 2_970))
    seen.now = Micros(seen.now + 3_000_000)
    seen.until(lambda: seen.offset >= 204)
    (removed,) = (one for one in seen.reported if one.kind == "topic_removed")
    assert 0 <= seen.now - removed.occurred_not_after < 1_000_000
    assert seen.count("the clock of the controller that leads is 10800 s behind the clock here") == (hours < 0)


def test_a_log_without_permission_is_not_current_and_reports_everything_afterwards(quorum: Any, watch: Any) -> None:
    quorum.append(*FRAMES[:100])
    seen = watch()
    assert not seen.source.is_primary
    seen.until(lambda: seen.source.is_primary and bool(seen.reported))
    quorum.fetch_error = 31
    seen.until(lambda: not seen.source.is_primary)
    assert "lacks ClusterAction" in seen.lines[-1]
    quorum.fetch_error = 0
    quorum.append(*FRAMES[100:])
    seen.until(lambda: seen.source.is_primary)
    seen.poll(5)
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.START], "not before a poller's last is older"
    seen.poll(7)
    assert [reason for reason, _ in seen.snapshots()] == [SnapshotReason.START, SnapshotReason.PERIODIC]


def test_a_log_of_which_no_controller_answers_is_not_current_after_half_a_minute(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES)
    quorum.fetch_error = 6
    for _ in range(3):
        with suppress(ConnectionRefused):
            seen.poll()
    assert seen.source.is_primary, "an election is no silence"
    seen.now = Micros(seen.now + 31_000_000)
    assert not seen.source.is_primary
    quorum.fetch_error = 0
    seen.until(lambda: seen.source.is_primary)
    seen.poll(12)
    assert len(seen.snapshots()) == 2, "a poller may have taken over meanwhile"


def test_a_leader_that_commits_nothing_does_not_keep_the_log_fresh(quorum: Any, watch: Any) -> None:
    """It has lost its majority, and before Kafka 3.7 it goes on to write and to answer."""
    seen = watch(FRAMES)
    before, quorum.high_watermark = len(seen.reported), 192
    for at in range(192, 202):
        quorum.append(batch(at, 1, NO_OP, timestamp=seen.now // 1_000 + 4_000))
        with suppress(ConnectionRefused):
            seen.poll(4)
    assert [one.occurred_not_after for one in seen.reported[before:]] == [], "nobody knows that it is up to date"
    assert not seen.source.is_primary
    (lost,) = (line for line in seen.lines if line.startswith("lost the metadata log"))
    assert lost.endswith("leads the metadata quorum and commits nothing: it has no majority; looking for the leader")

    quorum.high_watermark = None
    seen.until(lambda: seen.source.is_primary)
    assert seen.offset == 201


def test_a_leader_that_commits_nothing_is_left_for_the_one_that_was_elected(quorum: Any, watch: Any) -> None:
    """The old leader is cut off from the others, and still answers who reaches it."""
    seen = watch(FRAMES)

    def as_before(node: Any, _: Any) -> Any:
        response = node.fetched(0)
        response.responses[0].partitions[0].high_watermark = 192
        return response if node.node_id == 1 else None

    quorum.high_watermark = 192
    quorum.append(batch(192, 1, NO_OP, timestamp=seen.now // 1_000))
    seen.poll()
    quorum.faults.extend([as_before] * 100)
    quorum.elect(2, 2)
    quorum.log[-1:] = in_epoch(2, quorum.log[-1])
    quorum.high_watermark = None
    seen.now = Micros(seen.now + 6_000_000)

    seen.until(lambda: seen.offset == 192)

    assert seen.lines[-1].startswith("reading the metadata log from controller 2 ")


def test_controllers_are_reached_by_the_listener_that_is_named_or_else_by_their_own(quorum: Any, watch: Any) -> None:
    quorum.listeners = {"CONTROLLER": 1, "INTERNAL": None}
    assert watch(FRAMES, controllers=ControllerAddresses("INTERNAL")).offset == 191
    wrong = watch(controllers=ControllerAddresses("EXTERNAL"))
    sentence = r"no controller has the listener 'EXTERNAL'.*they have CONTROLLER, INTER"
    with pytest.raises(ConnectionRefused, match=sentence):
        wrong.poll()
    quorum.listeners = {"AUDIT": 1, "MY_CONTROLLERS": None, "ZONE": 1}
    quorum.log.clear()
    assert watch(FRAMES).offset == 191, "in whatever order they come"


def test_controllers_that_advertise_what_is_not_reached_are_read_where_configured(quorum: Any, watch: Any) -> None:
    quorum.listeners = {"CONTROLLER": 1}
    quorum.versions = {55: 1}  # DescribeQuorum before Kafka 3.9, which gives no addresses
    by_node = {number: Address("127.0.0.1", node.port) for number, node in quorum.nodes.items()}
    seen = watch(FRAMES, controllers=ControllerAddresses(by_node=by_node))
    quorum.elect(3, 2)
    seen.follow(batch(192, 2, NO_OP))


def test_of_crossed_controllers_the_leader_is_who_says_so_whatever_its_address_stands_for(
    quorum: Any, watch: Any
) -> None:
    port = {number: node.port for number, node in quorum.nodes.items()}
    crossed = {1: Address("127.0.0.1", port[2]), 2: Address("127.0.0.1", port[1])}
    quorum.compact(5_000)
    quorum.append(batch(5_000, 1, NO_OP))
    seen = watch(controllers=ControllerAddresses(by_node=crossed))
    seen.reach()
    assert f"reading the metadata log from controller 1 at 127.0.0.1:{port[1]}, epoch 1" in seen.lines
    assert seen.controllers() == [(1, 1)]


def unread(seen: Watch) -> list[str]:
    return [line for line in seen.lines if "no data from the metadata log" in line]


def test_after_a_record_of_a_newer_version_nothing_is_reported_until_a_newer_snapshot(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES)
    seen.source.acknowledge()
    before = len(seen.reported)
    quorum.append(batch(192, 1, b"\x01\x05\x03" + bytes(21), timestamp=1_795_260_000_000))
    quorum.append(*(batch(at, 1, NO_OP, timestamp=1_795_260_000_000 + at * 10_000) for at in range(193, 200)))
    seen.until(lambda: seen.tail.position.applied.offset == 200)
    seen.poll(7_200)  # a periodic report and a checkpoint would be due
    seen.source.acknowledge()
    assert seen.reported[before:] == []
    (line,) = unread(seen)
    assert line.startswith(
        "no data from the metadata log: its record at offset 192 cannot be read (PartitionChange version 3, this "
        "program reads up to 2: upgrade isrwatch)."
    )
    (payload,) = seen.source.take_undecodable()
    assert json.loads(payload)["metadata_offset"] == 192
    quorum.snapshot = (LogEnd(100, 1), SNAPSHOT)
    seen.poll()
    assert seen.reported[before:] == [], "a snapshot from before the record does not contain what it changed"
    quorum.snapshot = (LogEnd(195, 1), SNAPSHOT)
    seen.until(lambda: len(seen.reported) > before)
    assert seen.snapshots()[1:] == [(SnapshotReason.HISTORY_LOST, 199)]
    assert seen.source.is_whole
    assert len(unread(seen)) == 1
    seen.end()
    assert watch().offset == 199, "the checkpoint goes on behind the snapshot"


def test_a_program_that_stops_in_an_unknown_state_goes_on_before_what_it_cannot_read(quorum: Any, watch: Any) -> None:
    seen = watch(FRAMES)
    seen.source.acknowledge()
    quorum.append(batch(192, 1, b"\x01\x00\x05\x00"))
    seen.until(lambda: not seen.source.is_whole)
    seen.end()
    assert watch().offset == 191


def test_a_kraft_snapshot_that_cannot_be_read_is_loaded_once_and_a_newer_one_awaited(quorum: Any, watch: Any) -> None:
    *_, footer = split(SNAPSHOT)
    newer = batch(3_043, 1, b"\x01\x03\x03\x00").data
    quorum.compact(5_000, snapshot=SNAPSHOT[: -len(footer.data)] + newer + footer.data)
    quorum.append(batch(5_000, 1, NO_OP))
    loaded: list[int] = []
    answer = quorum.nodes[1].answer_FetchSnapshotRequest

    def counted(request: Any) -> Any:
        loaded.append(request.topics[0].partitions[0].snapshot_id.end_offset)
        return answer(request)

    quorum.nodes[1].answer_FetchSnapshotRequest = counted
    quorum.snapshot_bytes = 1_000_000
    seen = watch()
    seen.until(lambda: seen.tail.position.applied.offset == 5_001)
    for _ in range(3):
        assert seen.source.poll(seen.now) == []
    assert (len(unread(seen)), loaded) == (1, [5_000])
    quorum.snapshot = (LogEnd(5_001, 1), SNAPSHOT)
    seen.until(lambda: bool(seen.reported))
    assert seen.snapshots() == [(SnapshotReason.START, 5_000)]


def feature(name: bytes, level: int) -> bytes:
    return b"\x01\x0c\x00" + bytes([len(name) + 1]) + name + struct.pack(">h", level) + b"\x00"


def test_a_newer_kafka_whose_records_can_all_be_read_is_nothing_to_warn_of(watch: Any) -> None:
    seen = watch(FRAMES)
    features = b"\x02" + bytes([17]) + b"metadata.version" + struct.pack(">hh", 7, 99) + b"\x00"
    controller = b"\x01\x1b\x00" + struct.pack(">i", 102) + bytes(16) + b"\x00" + b"\x01" + features + b"\x00"
    seen.follow(batch(192, 1, controller), batch(193, 1, feature(b"metadata.version", 99)))
    assert seen.source._image.metadata_version == 99
    assert not seen.count("upgrade isrwatch")
    assert not seen.source.take_undecodable()


def test_an_upgrade_is_advised_once_where_a_record_of_a_newer_kafka_was_met(watch: Any) -> None:
    seen = watch(FRAMES)
    seen.follow(*(batch(192 + number, 1, b"\x01\x63\x00") for number in range(3)))
    line = "the metadata record at offset 192 goes to quarantine: unknown metadata record type 99 version 0"
    assert seen.count(f"{line}: upgrade isrwatch") == seen.count("upgrade isrwatch") == 1
    assert len(seen.source.take_undecodable()) == 3


def test_an_address_where_nobody_listens_is_one_sentence(quorum: Any, watch: Any) -> None:
    for node in quorum.nodes.values():
        node.stop()
    sentence = r"^no broker of cluster\.bootstrap_servers responds: 127\.0\.0\.1:\d+ cannot"
    with pytest.raises(ConnectionRefused, match=sentence):
        watch()


def test_the_checkpoint_lies_below_the_bus(tmp_path: Path) -> None:
    assert checkpoint_path(tmp_path, NAME) == tmp_path / "checkpoints" / "metadata_log-test.json"
