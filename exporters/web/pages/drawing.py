"""Drawings of time as values: lanes with bands and marks, in per cent of the width, which a template writes as SVG.

In per cent, so that bars become narrower on a narrow screen and texts do not. A drawing repeats what the page says in
words, for who sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.read_model.snapshot import SECOND
from exporters.web.pages.page import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

LANE: Final = 34
"""Height of a lane in pixels: a line of text above a bar."""
BAR: Final = 14
_TEXT: Final = 14
_DAY: Final = 86_400 * SECOND
_TICKS: Final = 3
_LEAST: Final = 0.2
"""So wide is a bar at least, in per cent: short incidents of a month can be seen."""


class Band(NamedTuple):
    """A bar from one time to another; ``path``: where it leads."""

    left: float
    width: float
    style: str
    path: str | None = None


class TimeMark(NamedTuple):
    """A moment, by a sign that is not its colour."""

    at: float
    style: Level


class Tick(NamedTuple):
    """A time on the axis; ``anchor``: the side of the text that stands there."""

    at: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars and marks below one label."""

    label: str
    bands: tuple[Band, ...] = ()
    marks: tuple[TimeMark, ...] = ()
    top: int = 0

    @property
    def text_y(self) -> int:
        """Baseline of the label."""
        return self.top + _TEXT

    @property
    def bar_y(self) -> int:
        """Top of the bars."""
        return self.top + _TEXT + 4


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lanes over one axis of time."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.axis_y + 20

    @property
    def axis_y(self) -> int:
        """Height of the axis."""
        return LANE * len(self.lanes) + 6


class Axis(NamedTuple):
    """Time from left to right, UTC microseconds."""

    since: int
    until: int

    def at(self, moment: int) -> float:
        """Return where a moment is, in per cent; at the edge if it lies beyond."""
        span = max(1, self.until - self.since)
        return round(100 * min(1.0, max(0.0, (moment - self.since) / span)), 2)

    def band(self, since: int, until: int | None, style: Level | str, path: str | None = None) -> Band:
        """Return a bar; ``until`` None: to the right edge."""
        left = self.at(since)
        width = self.at(self.until if until is None else until) - left
        return Band(min(left, 100 - _LEAST), round(max(_LEAST, width), 2), str(style), path)

    def ticks(self) -> tuple[Tick, ...]:
        """Return times at the begin, in the middle and at the end: days if it is long, else to the second."""
        pattern = "%m-%d" if self.until - self.since > 3 * _DAY else "%H:%M:%S"
        if pattern != "%m-%d" and _day(self.since) != _day(self.until):
            pattern = "%m-%d %H:%M"
        span, anchors = self.until - self.since, ("start", "middle", "end")
        moments = [self.since + span * number // (_TICKS - 1) for number in range(_TICKS)]
        return tuple(
            Tick(self.at(each), f"{datetime.fromtimestamp(each // SECOND, UTC):{pattern}}", anchor)
            for each, anchor in zip(moments, anchors, strict=True)
        )

    def drawing(self, lanes: Iterable[Lane]) -> Drawing:
        """Put lanes below each other."""
        placed = (Lane(each.label, each.bands, each.marks, LANE * number) for number, each in enumerate(lanes))
        return Drawing(tuple(placed), self.ticks())


def _day(micros: int) -> int:
    return micros // _DAY
