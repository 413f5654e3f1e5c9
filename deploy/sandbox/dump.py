"""The metadata log, decoded by Kafka's own tool: the reference for other readers of the log."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_RECORD: Final = re.compile(r"offset: (\d+) CreateTime: (\d+) .*payload: (\{.*\})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """One metadata record: ``kind`` is Kafka's, such as PARTITION_CHANGE_RECORD, ``data`` its fields as JSON.

    ``timestamp`` is the batch's, in UTC microseconds.
    """

    offset: int
    timestamp: int
    kind: str
    version: int
    data: dict[str, Any]


def dump_metadata_log(tool: Sequence[str | Path], data: Path) -> list[DumpedRecord]:
    """Decode the metadata log in a controller's log directory, control records left out.

    ``tool`` is the command of DumpLogSegments up to its options.
    """
    return _dumped(tool, sorted((data / "__cluster_metadata-0").glob("*.log")))


def dump_newest_snapshot(tool: Sequence[str | Path], data: Path) -> tuple[int, list[DumpedRecord]]:
    """Decode the newest KRaft snapshot: the offset before which it ends, and its records; 0 and none without one.

    Offsets of its records are not those of the log.
    """
    snapshots = sorted((data / "__cluster_metadata-0").glob("*.checkpoint"))
    if not snapshots:
        return 0, []
    return int(snapshots[-1].name.partition("-")[0]), _dumped(tool, snapshots[-1:])


def _dumped(tool: Sequence[str | Path], files: Sequence[Path]) -> list[DumpedRecord]:
    command = [*tool, "--cluster-metadata-decoder", "--files", ",".join(map(str, files))]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(records_in(dumped.stdout))


def records_in(text: str) -> Iterator[DumpedRecord]:
    """Read what the tool printed."""
    for line in text.splitlines():
        if match := _RECORD.search(line):
            record = json.loads(match[3])
            yield DumpedRecord(
                offset=int(match[1]),
                timestamp=int(match[2]) * 1000,
                kind=record["type"],
                version=record["version"],
                data=record["data"],
            )
