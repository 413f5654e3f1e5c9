"""The files of one log: ``<base position>.log``, in order. Depends on names and sizes, not on the content.

Invariant: a segment contains the positions from its base up to the base of the next one; the newest ends with its file.
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
    """Return the name of a source's folder, escaped so that no source name leads out of its channel.

    >>> folder_of("metadata_log:collector-1")
    'metadata_log%3Acollector-1'
    """
    return quote(source, safe="").replace(".", "%2E")


def source_of(folder: str) -> str:
    """Return the source of a folder."""
    return unquote(folder)


def segment_name(base: int) -> str:
    """Return the file name of a segment; names sort like positions."""
    return f"{base:0{_DIGITS}d}{SUFFIX}"


def segments(log: Path) -> list[Segment]:
    """List a log's segments, oldest first; empty when the log does not exist."""
    try:
        with os.scandir(log) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    bases = [int(name.removesuffix(SUFFIX)) for name in names]
    return [Segment(log / name, base, end) for name, base, end in zip(names, bases, [*bases, None][1:], strict=True)]


def folders(directory: Path) -> list[str]:
    """List the folders below a directory, sorted; empty when it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
