"""Real logs conform, what no controller would have written is found, rubbish is refused."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from streaming.contracts.records import NoOp, PartitionChange
from streaming.sources.metadata_log.decoding import EncodedBatch, decode, split
from tests.conformance.__main__ import app
from tests.conformance.output import DeviationCount, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.testing import Result

FIXTURES = Path(__file__).parent.parent / "fixtures" / "metadata_log"
SEGMENT = gzip.decompress((FIXTURES / "operators_and_faults.log.gz").read_bytes())
SNAPSHOT = gzip.decompress((FIXTURES / "snapshot.checkpoint.gz").read_bytes())
FRAMES = list(split(SEGMENT))


def conform(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def found(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in conform(*words, "--format", "json").stdout.splitlines()]


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


def test_the_log_of_a_real_controller_conforms(folder: Path) -> None:
    path = written(folder, [SEGMENT])
    for given in (path, folder, folder.parent):
        run = conform(given)
        assert run.exit_code == 0, run.output
        quirk, summary = run.stdout.splitlines()
        assert quirk == "6 x repeated change: a harmless difference between Kafka and the model, let pass"
        assert summary.startswith("conforms: 387 records, offsets 0 to 386, 2026-")


def test_segments_are_read_in_the_order_of_their_offsets_and_an_empty_one_is_left_out(folder: Path) -> None:
    older = written(folder, [frame.data for frame in FRAMES[:100]])
    newer = written(folder, [frame.data for frame in FRAMES[100:]], FRAMES[100].base_offset)
    written(folder, [], FRAMES[-1].last_offset + 1)
    assert [conform(folder).exit_code, conform(newer, older).exit_code] == [0, 0]
    assert found(folder)[-1]["records"] == 387


def test_the_controllers_own_defaults_make_the_check_sharper(folder: Path) -> None:
    written(folder, [SEGMENT])
    assert conform(folder, "--min-insync-replicas", "1", "--no-unclean-leader-election").exit_code == 0
    assert conform(folder, "--unclean-leader-election").exit_code == 1


def test_a_change_that_no_action_explains_is_one_line_with_what_was_expected(folder: Path) -> None:
    end = FRAMES[-1].last_offset + 1
    shrink = frames_of(PartitionChange, "isr")[0]
    run = conform(written(folder, [SEGMENT, at(end, shrink)]))
    deviations = [line for line in run.stdout.splitlines() if line.startswith("offset ")]
    assert (run.exit_code, len(deviations)) == (1, 1), run.output
    assert deviations[0].startswith(f"offset {end}  2026-")
    assert "PartitionChange " in deviations[0]
    assert "no action explains isr=[" in deviations[0]
    assert "; expected: " in deviations[0]
    assert run.stdout.splitlines()[-1].startswith(f"deviates 1 times, first at offset {end}: 388 records")


def test_scripts_get_a_deviation_as_an_object(folder: Path) -> None:
    end = FRAMES[-1].last_offset + 1
    begin, deviation, summary = found(written(folder, [SEGMENT, at(end, frames_of(PartitionChange, "isr")[0])]))
    assert begin == {"kind": "begin", "offset": 0, "after_snapshot": False}
    assert (deviation["kind"], deviation["offset"], deviation["record"]) == ("deviation", end, "PartitionChange")
    assert deviation["subject"].rpartition("-")[0]
    assert {each["action"] for each in deviation["considered"]} >= {"alter partition", "elect preferred leader"}
    assert (summary["conforms"], summary["deviations"], summary["first_deviation"]) == (False, 1, end)
    assert summary["quirks"] == {"repeated change": 6}


def test_a_damaged_batch_is_found_by_its_offset_and_the_check_goes_on(folder: Path) -> None:
    damaged = next(frame for frame in frames_of(NoOp) if frame.base_offset > 100)
    byte = SEGMENT.index(damaged.data) + len(damaged.data) - 1
    run = conform(written(folder, [SEGMENT[:byte], bytes([SEGMENT[byte] ^ 1]), SEGMENT[byte + 1 :]]))
    assert run.exit_code == 1
    line, *_, summary = run.stdout.splitlines()
    assert line.startswith(f"offset {damaged.base_offset}  ")
    assert "does not match its checksum" in line
    assert "deviates 1 times" in summary


def test_a_batch_that_was_taken_out_is_a_gap(folder: Path) -> None:
    missing = next(number for number, frame in enumerate(FRAMES) if frame in frames_of(NoOp) and number > 50)
    run = conform(written(folder, [frame.data for frame in FRAMES[:missing] + FRAMES[missing + 1 :]]))
    offset = FRAMES[missing].base_offset
    assert run.exit_code == 1
    assert f"offset {offset + 1}  " in run.stdout
    assert f"offset {offset} would be next" in run.stdout


def test_what_was_still_being_written_is_not_checked_and_that_is_said(folder: Path) -> None:
    run = conform(written(folder, [SEGMENT, FRAMES[-1].data[:30]]))
    assert run.exit_code == 0
    assert "30 bytes after offset 386 are no whole batch and were not checked" in run.stderr


# ------------------------------------------------------------------ a log that begins in the middle


def idle(first: int, count: int) -> list[bytes]:
    return [at(first + number, frames_of(NoOp)[0]) for number in range(count)]


def test_a_log_that_begins_in_the_middle_goes_on_from_its_snapshot(folder: Path) -> None:
    (folder / f"{4_900:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT)
    (folder / f"{5_000:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT)
    written(folder, idle(4_995, 20), first=4_995)
    run = conform(folder)
    assert run.exit_code == 0, run.output
    assert "conforms: 15 records, offsets 5000 to 5014" in run.stdout
    assert "the log begins at offset 5000: the state before comes from a snapshot" in run.stderr
    assert found(folder)[0] == {"kind": "begin", "offset": 5_000, "after_snapshot": True}


def test_after_a_snapshot_deviations_are_found(folder: Path) -> None:
    (folder / f"{5_000:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT)
    stranger = at(5_003, frames_of(PartitionChange, "isr")[0])
    written(folder, [*idle(5_000, 3), stranger], first=5_000)
    run = conform(folder)
    assert run.exit_code == 1
    assert "offset 5003  " in run.stdout
    assert "this topic does not exist" in run.stdout


# ------------------------------------------------------------------ what cannot be read


def refused(*words: str | Path) -> str:
    run = conform(*words)
    assert (run.exit_code, run.stdout) == (2, ""), run.output
    assert run.stderr.count("\n") == 1, run.stderr
    return run.stderr


def test_without_a_snapshot_a_log_that_begins_in_the_middle_is_refused(folder: Path) -> None:
    path = written(folder, idle(5_000, 3), first=5_000)
    assert "begins at offset 5000, and no snapshot says what was before" in refused(path)


@pytest.mark.parametrize("content", [b"rubbish" * 100, b"\x00" * 4_096, b"short", gzip.compress(SEGMENT)])
def test_rubbish_is_refused(folder: Path, content: bytes) -> None:
    assert "is no segment of __cluster_metadata-0" in refused(written(folder, [content]))


def test_the_log_of_an_ordinary_topic_is_refused(folder: Path) -> None:
    data = bytearray(FRAMES[0].data)
    data[16] = 1  # magic of an older format
    assert "its first batch cannot be read" in refused(written(folder, [bytes(data)]))


def test_a_damaged_snapshot_is_refused(folder: Path) -> None:
    (folder / f"{5_000:020}-{1:010}.checkpoint").write_bytes(SNAPSHOT[:-10] + b"0123456789")
    written(folder, idle(5_000, 3), first=5_000)
    assert "does not match its checksum" in refused(folder)


def test_what_is_not_there_is_refused(folder: Path) -> None:
    assert "No such file" in refused(folder / "00000000000000000000.log")
    assert "has no .log file" in refused(folder)
    written(folder, [])
    assert "every .log file is empty" in refused(folder)


def test_two_controllers_are_not_one_log(folder: Path, tmp_path: Path) -> None:
    written(tmp_path, [SEGMENT])
    written(folder, [SEGMENT])
    assert "give the log of one controller" in refused(folder, tmp_path / "00000000000000000000.log")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give a LOG to check"),
        (("x.log", "--follow"), "a LOG is read to its end"),
        (("x.log", "--bootstrap-servers", "127.0.0.1:1"), "a LOG is read to its end"),
        (("x.txt",), "neither a directory nor"),
        (("--bootstrap-servers", "127.0.0.1:1"), "no broker"),
        (("--bootstrap-servers", "nowhere"), "write host:port"),
    ],
)
def test_a_wrong_usage_and_a_silent_cluster_are_one_sentence(words: tuple[str, ...], reason: str) -> None:
    assert reason in refused(*words)


def test_a_long_log_shows_how_far_it_is() -> None:
    lines: list[str] = []
    times = iter([0.0, 3.0, 5.0, 5.0, 6.0])
    progress = ProgressLine(lines.append, clock=lambda: next(times))
    tally = DeviationCount(following=182_000, deviations=1)
    for share in (0.1, 0.314, 0.4):
        progress.show(tally, share)
    assert lines == ["offset 182,000, 31% of the log, 1 deviations so far"]
