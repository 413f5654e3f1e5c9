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


def dump_metadata_log(
    java: Sequence[str | Path], data: Path, *, package: str = "org.apache.kafka.tools"
) -> list[DumpedRecord]:
    """Decode the metadata log in a controller's log directory, control records left out.

    ``java`` is the command up to the class path; ``package`` holds the tool.
    """
    segments = sorted((data / "__cluster_metadata-0").glob("*.log"))
    dumped = subprocess.run(
        [
            *java,
            f"{package}.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
            ",".join(map(str, segments)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(_records(dumped.stdout))


def _records(text: str) -> Iterator[DumpedRecord]:
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
