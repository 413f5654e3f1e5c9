"""Is an alert the same one from its begin to its end? Series of conditions of a play that change a label, or come back.

A condition is that of one cluster, one subject and one begin. While its series is exposed no label of it may change,
and one that has ended may not come back: for Prometheus both would be another alert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

NAME: Final = "kafka_replication_condition_since_seconds"
SHORTEST_PAUSE: Final = 600.0
"""Seconds between two firings of one alert that are two troubles."""
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OF_CONDITION: Final = ("cluster", "condition", "subject")

Labels = tuple[tuple[str, str], ...]
Series = tuple[Labels, str]
"""Labels, and since when the condition holds."""


class Constancy:
    """Follows the scrapes of a play."""

    def __init__(self) -> None:
        self._shown: dict[Series, list[int]] = {}
        self._scrapes = 0

    def add(self, exposition: str) -> None:
        """Add the next scrape."""
        for line in exposition.splitlines():
            if line.startswith(NAME):
                labels, _, since = line.rpartition(" ")
                key = tuple(sorted(_LABEL.findall(labels))), since
                self._shown.setdefault(key, []).append(self._scrapes)
        self._scrapes += 1

    def broken(self) -> list[str]:
        """Say what has changed a label, and what has come back."""
        return sorted({*self._renamed(), *self._back()})

    def _back(self) -> Iterator[str]:
        for (labels, _), at in self._shown.items():
            if at[-1] - at[0] >= len(at):
                yield f"{_written(labels)} ended and came back"

    def _renamed(self) -> Iterator[str]:
        of: dict[tuple[str, ...], list[Series]] = {}
        for series in self._shown:
            labels, since = dict(series[0]), series[1]
            of.setdefault((*(labels[name] for name in _OF_CONDITION), since), []).append(series)
        for alike in of.values():
            for one in alike:
                for other in alike:
                    if self._shown[other][0] == self._shown[one][-1] + 1:
                        yield f"{_written(one[0])} became {_written(other[0])}"


def fired_again(fired: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say which alerts fired a second time, with the same labels, soon after they were over."""
    last: dict[tuple[str, Labels], float] = {}
    for each in sorted(fired, key=lambda each: float(each["began"])):
        key = each["alert"], tuple(sorted(each["labels"].items()))
        if key in last and each["began"] - last[key] < SHORTEST_PAUSE:
            yield f"{each['alert']} {_written(key[1])} fired again"
        last[key] = each["last"]


def _written(labels: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in labels if name != "cluster")
