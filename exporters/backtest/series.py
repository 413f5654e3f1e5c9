"""Values of series at every scrape, in the notation of promtool's rule tests: runs of equal values are short."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Values:
    """One series: what is written, and the open run of one value; "_" is no value."""

    written: list[str] = field(default_factory=list)
    value: str = "_"
    count: int = 0

    def add(self, value: str, count: int = 1) -> None:
        if value == self.value:
            self.count += count
            return
        self.end()
        self.value, self.count = value, count

    def end(self) -> None:
        """Write the run; a scrape without a series that was there before marks it as ended, as Prometheus does."""
        value, count = self.value, self.count
        if value == "_" and self.written and count:
            self.written.append("stale")
            count -= 1
        if value == "_":
            self.written += [f"_x{count}"] if count else []
        else:
            self.written.append(value if count == 1 else f"{value}x{count - 1}")


class ScrapedSeries:
    """The series of scrapes that follow each other at equal distances."""

    def __init__(self) -> None:
        """Start without a scrape."""
        self.scrapes = 0
        self._series: dict[str, _Values] = {}
        self._last: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._series)

    def add(self, exposition: str) -> None:
        """Add the next scrape: lines of the text format."""
        for line in exposition.removesuffix("\n").split("\n"):
            if not line or line.startswith("#"):
                continue
            key, _, value = line.rpartition(" ")
            values = self._series.setdefault(key, _Values())
            missed = self.scrapes - self._last.get(key, -1) - 1
            if missed:
                values.add("_", missed)
            values.add(_plain(value))
            self._last[key] = self.scrapes
        self.scrapes += 1

    def written(self) -> Iterator[tuple[str, str]]:
        """Yield each series with its values; no scrape may be added after."""
        for key, values in self._series.items():
            if missed := self.scrapes - self._last[key] - 1:
                values.add("_", missed)
            values.end()
            yield key, " ".join(values.written)


def _plain(number: str) -> str:
    """Write a number without an exponent, behind which promtool would read a count."""
    return format(Decimal(number), "f") if "e" in number else number
