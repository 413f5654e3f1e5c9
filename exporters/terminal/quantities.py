"""Amounts, durations and lists of names as a terminal shows them. Unknown is "?"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.times import span
from exporters.terminal.output import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_PARTITIONS: Final = 3
_UNIT: Final = 1024


def size(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that formats bytes in the largest unit of which there is one."""

    def formatted(row: Mapping[str, Any]) -> str:
        if row[name] is None:
            return UNKNOWN
        size, units = float(row[name]), ["PiB", "TiB", "GiB", "MiB", "KiB"]
        unit = ""
        while size >= _UNIT and units:
            size, unit = size / _UNIT, units.pop()
        return f"{size:.1f} {unit}" if unit else f"{size:.0f} B"

    return formatted


def percent(value: float | None) -> str:
    """Format a share."""
    return UNKNOWN if value is None else f"{value:.0f} %"


def lasting(seconds: float | None) -> str:
    """Return how long something lasts; nothing where it has no end, or none that is known."""
    return "" if seconds is None else span(seconds)


def milliseconds(value: int | None) -> str:
    """Format a duration that Kafka gives in milliseconds."""
    return UNKNOWN if value is None else span(value / 1000)


def first(names: list[str] | None) -> str:
    """Return the first of many names, and how many more there are."""
    listed = names or []
    more = len(listed) - _MOST_PARTITIONS
    return ",".join(listed[:_MOST_PARTITIONS]) + (f" and {more} more" if more > 0 else "")
