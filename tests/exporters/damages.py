"""Ways in which a table can be damaged."""

from __future__ import annotations

import shutil
from pathlib import Path


def data_gone(table: Path) -> None:
    """Delete all files of rows."""
    for file in table.rglob("*.parquet"):
        file.unlink()


def data_torn(table: Path) -> None:
    """Cut off all files of rows."""
    for file in table.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])


def log_entry_torn(table: Path) -> None:
    """Cut off the newest entry of the log."""
    entry = newest_entry(table)
    entry.write_text(entry.read_text()[:-40])


def checkpoint_torn(table: Path) -> None:
    """Leave a part of the checkpoint that readers begin with, and none of the entries that it replaces."""
    log, newest = table / "_delta_log", newest_entry(table)
    later = with_another_version(table)
    (log / f"{newest.stem}.checkpoint.parquet").write_bytes(b"PAR1 torn")
    (log / "_last_checkpoint").write_text(f'{{"version":{int(newest.stem)},"size":3}}')
    for older in set(log.glob("*.json")) - {later}:
        older.unlink()


def log_is_a_file(table: Path) -> None:
    """Put an empty file in the place of the log."""
    shutil.rmtree(table / "_delta_log")
    (table / "_delta_log").write_text("")


def newest_entry(table: Path) -> Path:
    """Name the newest entry of the log."""
    return max((table / "_delta_log").glob("*.json"))


def with_another_version(table: Path) -> Path:
    """Add a version that changes no rows, and name its entry."""
    newest = newest_entry(table)
    later = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    later.write_text(newest.read_text().splitlines()[0] + "\n")
    return later


DAMAGES = (data_gone, data_torn, log_entry_torn, checkpoint_torn, log_is_a_file)
