"""Silence of a controller: which gaps between the times of its records are one."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.contracts.identifiers import Micros
from streaming.contracts.records import NoOp, RecordBatch
from streaming.sources.metadata_log.silence import ControllerClock, ControllerSilence

SECOND = 1_000_000


def ticks(*times: float, epoch: int = 1) -> list[RecordBatch]:
    return [
        RecordBatch(base_offset=place, epoch=epoch, timestamp=Micros(round(at * SECOND)), records=(NoOp(),))  # type: ignore[arg-type]
        for place, at in enumerate(times)
    ]


def silences(batches: Iterable[RecordBatch]) -> list[tuple[float, float]]:
    clock = ControllerClock()
    found = [clock.follow(batch) for batch in batches]
    return [(each.since / SECOND, each.until / SECOND) for each in found if isinstance(each, ControllerSilence)]


def test_only_a_gap_in_the_ticks_of_one_controller_is_a_silence() -> None:
    assert silences(ticks(0, 0.5, 1, 13, 13.5)) == [(1, 13)]
    assert silences(ticks(0, 0.5, 1, 3.4, 3.9)) == []  # late, as a busy controller is
    assert silences(ticks(0, 5, 10, 15, 20)) == []  # metadata.max.idle.interval.ms = 5000
    assert silences(ticks(0, 5, 10, 22)) == [(10, 22)]
    assert silences([*ticks(0, 0.5, 1), *ticks(13, 13.5, epoch=2)]) == []  # another one, or another process


def test_a_silence_is_found_also_after_the_clock_of_the_controller_was_set_back() -> None:
    assert silences(ticks(7_200, 7_200.5, 7_201, 1.5, 2, 2.5, 14, 14.5)) == [(2.5, 14)]


def test_a_log_without_ticks_proves_nothing() -> None:
    def silent(batch: RecordBatch) -> RecordBatch:
        return RecordBatch(base_offset=batch.base_offset, epoch=1, timestamp=batch.timestamp, records=())

    assert silences(map(silent, ticks(0, 0.5, 1, 13, 13.5))) == []
    assert silences([*ticks(0), *map(silent, ticks(0.5, 13))]) == []  # its interval is unknown
