"""What stays of a run for those who look at it later: the tables, and Kafka's own log as Kafka's tool decodes it."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from deploy.sandbox.dump import DumpedRecord

TABLES, LOG = "tables", "metadata-log.jsonl.gz"


def kept_night(tables: Path, records: Iterable[DumpedRecord], folder: Path) -> None:
    """Copy the tables, and write the records, into a folder; the log comes last, and says that all is there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tables, folder / TABLES)
    with gzip.open(folder / LOG, "wt", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(asdict(record))}\n" for record in records)


def kept_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs that were kept whole below one."""
    return sorted(log.parent for log in folder.rglob(LOG))


def records_kept(folder: Path) -> list[DumpedRecord]:
    """Read Kafka's log of a run."""
    with gzip.open(folder / LOG, "rt", encoding="utf-8") as file:
        return [DumpedRecord(**json.loads(line)) for line in file]
