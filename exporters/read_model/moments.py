"""Moments as ``?at=`` of pages and of the API, and ``--as-of`` of commands have them: a time, or a version."""

from __future__ import annotations

from typing import NamedTuple

from exporters.read_model.times import Clock


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
