"""Pace of a sampled value, and how long something lasts at that pace.

A slope is over at least half a window, so that one odd sample is no trend, and over hardly more than a window, so that
it follows a change. It needs three values besides the newest sample, which stay in the row: it survives restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import SECOND

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros

LAG_WINDOW: Final = 60_000_000
"""Six samples of ``collect.offsets_interval``: a broker that recovers is not waited for longer."""
BYTES_WINDOW: Final = 1_200_000_000
"""Brokers delete old segments every five minutes (``log.retention.check.interval.ms``): two such times, or more."""


class Slope(NamedTuple):
    """Movement of a value, after some samples.

    Attributes:
        since: when the sample was taken that the next one is compared with, microseconds.
        since_value: the value in it.
        per_second: growth, negative while it shrinks; None before half a window.
    """

    since: Micros
    since_value: int
    per_second: float | None


def slope_after(before: Slope | None, at: Micros, value: int | None, window: Micros) -> Slope | None:
    """Return the slope after one more sample; None while the value is unknown, and it starts over after that.

    The sample to compare with is the first of each window; windows are cut by the clock.
    """
    if value is None:
        return None
    if before is None:
        return Slope(at, value, None)
    elapsed, per_second = at - before.since, before.per_second
    if elapsed >= window // 2:
        per_second = (value - before.since_value) / (elapsed / SECOND)
    is_next = at // window != before.since // window
    return Slope(at, value, per_second) if is_next else before._replace(per_second=per_second)


def seconds_left(distance: int | None, per_second: float | None) -> float | None:
    """Return how long something lasts that shrinks by ``per_second`` (a negative number); None where it does not.

    None, too, where there is nothing left, or either is unknown.
    """
    return distance / -per_second if distance and per_second is not None and per_second < 0 else None
