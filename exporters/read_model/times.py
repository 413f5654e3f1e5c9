"""Times as people write and read them: ``15m``, ``today``, ``10:30``, ``yesterday 10:30``, ISO 8601; UTC or local.

Inside, all times are UTC microseconds. A date or a time of day without a zone is UTC, unless ``local``.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from streaming.durations import DURATION, SECONDS_OF, seconds_of
from streaming.errors import ConfigurationError

SECOND: Final = 1_000_000
_AGO: Final = re.compile(rf"({DURATION.pattern})(?:\s+ago)?")
_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_SPACE_IN_ZONE: Final = re.compile(r"(.*[T ]\d{2}:.*\d) (\d{2}:?\d{2})")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """Parses and formats times, relative to ``now`` in UTC microseconds, in the local time zone or in UTC."""

    now: int
    local: bool = False

    @property
    def zone(self) -> str:
        """Name of the zone of what it formats."""
        return "local" if self.local else "UTC"

    def read(self, text: str) -> int:
        """Parse a time.

        Raises:
            ConfigurationError: the text is not a time.

        >>> Clock(now=3_600_000_000).read("15m")
        2700000000
        >>> Clock(now=0).read("1970-01-02T00:00:01+01:00")
        82801000000
        """
        try:
            micros = micros_of(self._parsed(text.strip()))
            self._at(micros)  # with its zone it may be of no year that can be written
        except (ValueError, OverflowError):
            raise ConfigurationError(
                f"cannot read the time {text!r}; write for example 15m, 2h, 7d, today, 10:30, "
                "yesterday 10:30 or 2026-03-01T10:30"
            ) from None
        return micros

    def iso(self, micros: int) -> str:
        """Format a time as ISO 8601, to the millisecond.

        >>> Clock(now=0).iso(3_723_004_000)
        '1970-01-01T01:02:03.004Z'
        """
        return self._at(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def short(self, micros: int) -> str:
        """Format a time for a terminal: without the year, and without the day if it is today.

        >>> Clock(now=0).short(3_723_004_000)
        '01:02:03.004'
        """
        at = self._at(micros)
        is_today = at.date() == self._at(self.now).date()
        return at.strftime("%H:%M:%S.%f" if is_today else "%m-%d %H:%M:%S.%f")[:-3]

    def _parsed(self, text: str) -> dt.datetime:
        if ago := _AGO.fullmatch(text):
            return self._at(self.now) - dt.timedelta(seconds=seconds_of("the time", ago[1]))
        return self._zoned(self._absolute(text))

    def _absolute(self, text: str) -> dt.datetime:
        here = self._at(self.now)
        midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        words = {"now": here, "today": midnight, "yesterday": midnight - dt.timedelta(days=1)}
        day, _, time_of_day = text.lower().partition(" ")
        if text.lower() in words:
            return words[text.lower()]
        if day in words and day != "now" and _OF_DAY.fullmatch(time_of_day):
            return dt.datetime.combine(words[day], _time_of_day(time_of_day))
        if _OF_DAY.fullmatch(text):
            return dt.datetime.combine(midnight, _time_of_day(text))
        return parse_iso(text)

    def _zoned(self, moment: dt.datetime) -> dt.datetime:
        if moment.tzinfo is not None:
            return moment
        return moment.astimezone() if self.local else moment.replace(tzinfo=dt.UTC)

    def _at(self, micros: int) -> dt.datetime:
        at = _EPOCH + dt.timedelta(microseconds=micros)
        return at.astimezone() if self.local else at


def _time_of_day(text: str) -> dt.time:
    return dt.time.fromisoformat(f"0{text}" if text[1] == ":" else text)


def parse_iso(text: str) -> dt.datetime:
    """Parse ISO 8601; in an address that was typed the ``+`` of a zone is a space.

    >>> parse_iso("2026-03-01T10:30 02:00").isoformat()
    '2026-03-01T10:30:00+02:00'
    """
    spaced = _SPACE_IN_ZONE.fullmatch(text)
    return dt.datetime.fromisoformat(f"{spaced[1]}+{spaced[2]}" if spaced else text)


def micros_of(moment: dt.datetime) -> int:
    """Convert a time with a zone to UTC microseconds."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def span(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> span(0.25), span(75), span(7_260), span(200_000)
    ('0.2s', '1m15s', '2h1m', '2d7h')
    """
    if seconds < SECONDS_OF["m"]:
        return f"{seconds:.1f}s"
    for large, small in (("d", "h"), ("h", "m"), ("m", "s")):
        if seconds >= SECONDS_OF[large]:
            whole, rest = divmod(int(seconds), SECONDS_OF[large])
            return f"{whole}{large}{rest // SECONDS_OF[small]}{small}"
    raise AssertionError("longer than a minute")


# Moments as ``?at=`` of pages and of the API, and ``--as-of`` of commands have them.


class Version(NamedTuple):
    """A version of ``partition_changes``, which commands take instead of a time."""

    number: int


def read_moment(text: str, now: int, *, local: bool = False) -> int | Version:
    """Read a moment: a time, or a span before now, as UTC microseconds; digits alone are a version.

    Args:
        text: as it was written.
        now: UTC microseconds that a span is subtracted from.
        local: whether a time without a zone is of the local one, else UTC.

    Raises:
        ConfigurationError: the text is neither.

    >>> read_moment("1970-01-01T00:00:02Z", now=0), read_moment("1s", now=3_000_000), read_moment("12", now=0)
    (2000000, 2000000, Version(number=12))
    """
    number = text.strip()
    if number.isascii() and number.isdecimal():
        return Version(int(number))
    return Clock(now, local).read(text)
