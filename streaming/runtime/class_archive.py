"""Class data sharing archives: Spark starts in half the time, a Kafka node in 1.8 instead of 3 seconds.

A JVM writes an archive of the classes it has loaded at its exit, and later ones map it instead of reading, verifying
and linking them again. It is valid for one Java and one set of jars; a JVM that finds it invalid runs without it.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Final

from streaming.runtime.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.runtime.java import Java

KEPT: Final = 3
"""Archives of one program: each installation of Spark has its own, of 150 MB."""
_QUIET: Final = "-Xlog:cds*=off"  # no warnings about classes that cannot be archived, or an invalid archive


def archive_path(name: str, java: Java, jars: Sequence[Path]) -> Path:
    """Return the path of the archive of a program for a Java and jars, whether it exists or not."""
    release = java.home / "release"
    parts = [str(java.home), release.read_text() if release.exists() else ""]
    parts += [f"{jar} {jar.stat().st_mtime_ns}" for jar in jars]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / f"{name}-classes-{fingerprint}.jsa"


def using(archive: Path) -> tuple[str, ...]:
    """Return the JVM options to use the archive; none while it does not exist."""
    return (f"-XX:SharedArchiveFile={archive}", _QUIET) if archive.exists() else ()


def recording(draft: Path) -> tuple[str, ...]:
    """Return the JVM options to write the archive at a clean exit."""
    return (f"-XX:ArchiveClassesAtExit={draft}", _QUIET)


def save(draft: Path, archive: Path) -> None:
    """Move a new archive into the cache; the folders may be on different file systems."""
    if not draft.exists() or archive.exists():
        return
    beside = archive.with_name(f".{archive.name}.{draft.parent.name}")
    shutil.move(draft, beside)
    beside.replace(archive)
    of_program = archive.parent.glob(f"{archive.name.rpartition('-')[0]}-*.jsa")
    for old in sorted(of_program, key=lambda each: each.stat().st_mtime_ns)[:-KEPT]:
        old.unlink(missing_ok=True)
