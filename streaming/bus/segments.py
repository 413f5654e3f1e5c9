"""The files of one log: ``<base position>.log``, in order. Knows names and sizes, not what is inside.

A segment holds the positions from its base up to the base of the next one; the newest ends where its file ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

SUFFIX: Final = ".log"
_DIGITS: Final = 20


class Segment(NamedTuple):
    """One file; ``end`` is the base of the next segment, None for the newest."""

    path: Path
    base: int
    end: int | None


def folder_of(source: str) -> str:
    """Spell a source as the name of a folder; no source can climb out of its channel.

    >>> folder_of("metadata_log:collector-1")
    'metadata_log%3Acollector-1'
    """
    return quote(source, safe="").replace(".", "%2E")


def source_of(folder: str) -> str:
    """Read a folder's name back."""
    return unquote(folder)


def segment_name(base: int) -> str:
    """Name a segment by its base position, so that names sort as positions do."""
    return f"{base:0{_DIGITS}d}{SUFFIX}"


def segments(log: Path) -> list[Segment]:
    """List a log's segments, oldest first; none when the log does not exist."""
    try:
        with os.scandir(log) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    bases = [int(name.removesuffix(SUFFIX)) for name in names]
    return [Segment(log / name, base, end) for name, base, end in zip(names, bases, [*bases, None][1:], strict=True)]


def folders(directory: Path) -> list[str]:
    """List the folders below a directory, sorted; none when it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
