"""From all that probes met to what changed: rows of milliseconds, node, probe, how it went, and what differs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from tests.listeners.probes import Seen

STANDS_MICROS: Final = 1_500_000
"""What has not moved for so long stands: a quiet controller writes a record each 500 ms."""
ENDS_EVERY_MICROS: Final = 1_000_000
REMOVED: Final = None

Row = list[Any]


def changes_of(seen: Iterable[Seen], zero: int) -> list[Row]:
    """Return the changes, ordered by time; the first row of a probe has all that it met."""
    rows: list[Row] = []
    for _, each in groupby(sorted(seen, key=lambda one: (one.node, one.probe, one.at)), key=lambda one: one[1:3]):
        probe = list(each)
        rows += [*_outcomes(probe, zero), *_of_moving(probe, zero)]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def _outcomes(seen: list[Seen], zero: int) -> Iterator[Row]:
    last_how, last = "", dict[str, Any]()
    for one in seen:
        differs: dict[str, Any] = {}
        if one.how == "answered":
            differs = {key: value for key, value in one.content.items() if last.get(key) != value or key not in last}
            differs |= {key: REMOVED for key in last if key not in one.content}
            last = one.content
        if one.how != last_how or differs:
            yield [_millis(one.at, zero), one.node, one.probe, one.how, *([differs] if differs else [])]
        last_how = one.how


def _of_moving(seen: list[Seen], zero: int) -> Iterator[Row]:
    answers = [one for one in seen if one.how == "answered" and one.moving]
    for name in {name for one in answers for name in one.moving}:
        values = [(one.at, one.node, one.moving[name]) for one in answers if one.moving.get(name) is not None]
        if name.endswith("ends"):
            yield from _sampled(name, values, zero)
        else:
            yield from _stands(name, values, zero)


def _sampled(name: str, values: list[tuple[int, int, dict[str, int]]], zero: int) -> Iterator[Row]:
    """Yield the ends of logs or epochs each second, where they differ, and at once if there are others."""
    due, last = 0, dict[str, int]()
    for at, node, ends in values:
        if ends.keys() != last.keys() or (at >= due and ends != last):
            yield [_millis(at, zero), node, name, "answered", ends | dict.fromkeys(last.keys() - ends.keys(), REMOVED)]
            due, last = at + ENDS_EVERY_MICROS, ends


def _stands(name: str, values: list[tuple[int, int, int]], zero: int) -> Iterator[Row]:
    """Yield when a number that moves begins to stand, and when it moves again.

    It stands from the first answer that had the value, and moves with the first that has another one.
    """
    stood: bool | None = None
    for value, same in groupby(values, key=lambda one: one[2]):
        times = [at for at, _, _ in same]
        stands = times[-1] - times[0] > STANDS_MICROS
        if stands is not stood:
            yield [_millis(times[0], zero), values[0][1], name, "stands" if stands else "moves", {"at": value}]
        stood = stands


def _millis(at: int, zero: int) -> int:
    return (at - zero) // 1000
