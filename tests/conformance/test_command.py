"""Real logs conform, what no controller would have written is found, rubbish is refused."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming.contracts.records import NoOp, PartitionChange
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, split
from tests.conformance.__main__ import main

FIXTURES = Path(__file__).parent.parent / "fixtures" / "metadata_log"
SEGMENT = gzip.decompress((FIXTURES / "operators_and_faults.log.gz").read_bytes())
SNAPSHOT = gzip.decompress((FIXTURES / "snapshot.checkpoint.gz").read_bytes())
FRAMES = list(split(SEGMENT))


class Run(NamedTuple):
    """How the command ended, and what it printed."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture
def conform(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return lambda *words: Run(main([*map(str, words)]), *capsys.readouterr())


def frames_of(kind: type, *fields: str) -> list[EncodedBatch]:
    """Give the batches of a single record of a kind that has these fields."""
    each = [(frame, decode(frame).records) for frame in FRAMES]
    return [
        frame
        for frame, records in each
        if len(records) == 1
        and isinstance(records[0], kind)
        and all(getattr(records[0], name) is not None for name in fields)
    ]


def at(offset: int, frame: EncodedBatch) -> bytes:
    """Move a batch; its checksum does not cover its offset."""
    return struct.pack(">q", offset) + frame.data[8:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "__cluster_metadata-0"
    made.mkdir()
    return made


def written(folder: Path, frames: Iterable[bytes], first: int = 0) -> Path:
    path = folder / f"{first:020}.log"
    path.write_bytes(b"".join(frames))
    return path


def test_the_log_of_a_real_controller_conforms(folder: Path, conform: Callable[..., Run]) -> None:
    path = written(folder, [SEGMENT])
    for given in (path, folder, folder.parent):
        run = conform(given)
        assert run.code == 0
        assert run.stdout.splitlines() == [
            "6 x repeated change: a harmless difference between Kafka and the model, let pass",
            "conforms: 387 records, offsets 0 to 386",
        ]


def test_segments_are_read_in_the_order_of_their_offsets_and_an_empty_one_is_left_out(
    folder: Path, conform: Callable[..., Run]
) -> None:
    older = written(folder, [frame.data for frame in FRAMES[:100]])
    newer = written(folder, [frame.data for frame in FRAMES[100:]], FRAMES[100].base_offset)
    written(folder, [], FRAMES[-1].last_offset + 1)
    assert conform(folder) == conform(newer, older)
    assert conform(folder).stdout.endswith("conforms: 387 records, offsets 0 to 386\n")


def test_the_controllers_own_defaults_make_the_check_sharper(folder: Path, conform: Callable[..., Run]) -> None:
    written(folder, [SEGMENT])
    assert conform(folder, "--min-insync-replicas", "1", "--no-unclean-leader-election").code == 0
    assert conform(folder, "--unclean-leader-election").code == 1


def test_a_change_that_no_action_explains_is_told_with_what_was_expected(
    folder: Path, conform: Callable[..., Run]
) -> None:
    end = FRAMES[-1].last_offset + 1
    run = conform(written(folder, [SEGMENT, at(end, frames_of(PartitionChange, "isr")[0])]))
    assert run.code == 1
    assert run.stdout.startswith(f"{end}  no action explains: PartitionChange(")
    assert "    elect preferred leader: " in run.stdout
    assert run.stdout.splitlines()[-1] == (f"deviates 1 times, first at offset {end}: 388 records, offsets 0 to {end}")


def test_a_damaged_batch_is_found_by_its_offset_and_the_check_goes_on(
    folder: Path, conform: Callable[..., Run]
) -> None:
    damaged = next(frame for frame in frames_of(NoOp) if frame.base_offset > 100)
    byte = SEGMENT.index(damaged.data) + len(damaged.data) - 1
    run = conform(written(folder, [SEGMENT[:byte], bytes([SEGMENT[byte] ^ 1]), SEGMENT[byte + 1 :]]))
    line, *_, summary = run.stdout.splitlines()
    assert line.startswith(f"{damaged.base_offset}  ")
    assert "does not match its checksum" in line
    assert (run.code, summary.partition(",")[0]) == (1, "deviates 1 times")


def test_a_batch_that_was_taken_out_is_a_gap(folder: Path, conform: Callable[..., Run]) -> None:
    missing = next(number for number, frame in enumerate(FRAMES) if frame in frames_of(NoOp) and number > 50)
    run = conform(written(folder, [frame.data for frame in FRAMES[:missing] + FRAMES[missing + 1 :]]))
    offset = FRAMES[missing].base_offset
    assert (run.code, f"{offset + 1}  offset {offset} would be next" in run.stdout) == (1, True)


def test_what_was_still_being_written_is_not_checked_and_that_is_said(
    folder: Path, conform: Callable[..., Run]
) -> None:
    run = conform(written(folder, [SEGMENT, FRAMES[-1].data[:30]]))
    assert run.code == 0
    assert "30 bytes after offset 386 are no whole batch and were not checked" in run.stderr


# ------------------------------------------------------------------ a log that begins in the middle


def idle(first: int, count: int) -> list[bytes]:
    return [at(first + number, frames_of(NoOp)[0]) for number in range(count)]


def test_a_log_that_begins_in_the_middle_goes_on_from_its_snapshot(folder: Path, conform: Callable[..., Run]) -> None:
    for offset in (4_900, 5_000):
        (folder / f"{offset:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT)
    written(folder, idle(4_995, 20), first=4_995)
    run = conform(folder)
    assert run.code == 0
    assert run.stdout.splitlines() == [
        "the state before offset 5000 comes from a snapshot: its steps are not checked",
        "conforms: 15 records, offsets 5000 to 5014",
    ]


def test_after_a_snapshot_deviations_are_found(folder: Path, conform: Callable[..., Run]) -> None:
    (folder / f"{5_000:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT)
    stranger = at(5_003, frames_of(PartitionChange, "isr")[0])
    run = conform(written(folder, [*idle(5_000, 3), stranger], first=5_000), *folder.glob("*.checkpoint"))
    assert (run.code, "5003  this topic does not exist: " in run.stdout) == (1, True)


# ------------------------------------------------------------------ what cannot be read


@pytest.fixture
def refused(conform: Callable[..., Run]) -> Callable[..., str]:
    def refused(*words: str | Path) -> str:
        code, stdout, stderr = conform(*words)
        assert (code, stdout, stderr.count("\n")) == (2, "", 1), stderr
        return stderr

    return refused


def test_without_a_snapshot_a_log_that_begins_in_the_middle_is_refused(
    folder: Path, refused: Callable[..., str]
) -> None:
    path = written(folder, idle(5_000, 3), first=5_000)
    assert "begins at offset 5000, and no snapshot says what was before" in refused(path)


ORDINARY = FRAMES[0].data[:16] + b"\x01" + FRAMES[0].data[17:]
"""Of an ordinary topic: the magic of an older format."""


@pytest.mark.parametrize("content", [b"rubbish" * 100, b"\x00" * 4_096, b"short", gzip.compress(SEGMENT), ORDINARY])
def test_rubbish_is_refused(folder: Path, refused: Callable[..., str], content: bytes) -> None:
    assert "is no segment of __cluster_metadata-0: its first batch cannot be" in refused(written(folder, [content]))


def test_a_damaged_snapshot_is_refused(folder: Path, refused: Callable[..., str]) -> None:
    (folder / f"{5_000:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT[:-10] + b"0123456789")
    written(folder, idle(5_000, 3), first=5_000)
    assert "does not match its checksum" in refused(folder)


def test_what_is_not_there_is_refused(folder: Path, refused: Callable[..., str]) -> None:
    assert "No such file" in refused(folder / "00000000000000000000.log")
    assert "neither a directory nor" in refused(folder / "x.txt")
    assert "has no .log file" in refused(folder)
    written(folder, [])
    assert "every .log file is empty" in refused(folder)


def test_two_controllers_are_not_one_log(folder: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    paths = [written(each, [SEGMENT]) for each in (folder, tmp_path)]
    assert "give the log of one controller" in refused(*paths)
