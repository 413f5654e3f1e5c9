"""Which version of a table was true at a moment, from the Delta log alone. Knows files, no rows."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.tail import BEFORE_FIRST
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporters.history.moments import Clock

_ENTRY: Final = re.compile(r"(\d{20})\.json")
MILLISECOND: Final = 1_000


def as_of(tables: Path, text: str, clock: Clock) -> int:
    """Read ``--as-of``: a version of ``partition_changes``, or a moment: the newest version committed by then.

    A moment asks what was known then: what had happened and was still on its way is not in it.

    Raises:
        ConfigurationError: it is neither, or lies before or after what the log still holds.
    """
    path = tables / PARTITION_CHANGES.name
    versions = versions_of(path)
    if not versions:
        raise ConfigurationError(f"{path} has no version yet; --as-of needs one")
    if text.strip().isdecimal():
        version = int(text)
        if not versions[0] <= version <= versions[-1]:
            raise ConfigurationError(f"--as-of {version}: {path} has the versions {versions[0]} to {versions[-1]}")
        return version
    moment = clock.read(text)
    position = bisect_right(versions, moment, key=lambda version: committed_at(path, version))
    if not position:
        first = clock.iso(committed_at(path, versions[0]))
        raise ConfigurationError(f"--as-of {text}: the oldest version that {path} still tells is of {first}")
    return versions[position - 1]


def versions_of(path: Path) -> list[int]:
    """Name the versions that the log still tells, oldest first, without a gap."""
    try:
        found = sorted(int(entry[1]) for file in (path / "_delta_log").iterdir() if (entry := _ENTRY.match(file.name)))
    except FileNotFoundError:
        return []
    begin = next((at for at in range(len(found) - 1, 0, -1) if found[at] - found[at - 1] > 1), 0)
    return found[begin:]


def committed_at(path: Path, version: int) -> int:
    """Tell when a version was committed, UTC microseconds; a commit that does not say: when its file was written."""
    entry = path / "_delta_log" / f"{version:020}.json"
    for line in entry.read_text(encoding="utf-8").splitlines():
        told = json.loads(line).get("commitInfo", {}).get("timestamp")
        if told is not None:
            return int(told) * MILLISECOND
    return entry.stat().st_mtime_ns // MILLISECOND


def newest_up_to(versions: list[int], limit: int, told: Callable[[int], int | None]) -> int | None:
    """Find, by halving, the newest version of a table that is true of no later version of the truth than ``limit``.

    Args:
        versions: of the table, oldest first.
        limit: a version of ``partition_changes``.
        told: gives the version of the truth that a version of the table is true of.
    """
    position = bisect_right(versions, limit, key=lambda version: _known(told(version)))
    return versions[position - 1] if position else None


def _known(version: int | None) -> int:
    return BEFORE_FIRST if version is None else version
