"""A checkpoint of Spark Structured Streaming: how far its query has come in the topics of Kafka that it reads.

Spark writes ``offsets/N`` before a batch and ``commits/N`` after it. So what the query has finished are the offsets of
the newest batch in ``commits``, each the next record to read. An offsets file has a version, a line of metadata, and
one line per source of the query; that of a Kafka source is ``{"topic": {"partition": offset}}``. Other sources, such as
a Delta table, have JSON of their own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros

if TYPE_CHECKING:
    from pathlib import Path

    ByTopic = dict[str, dict[int, int]]

_OFFSETS: Final = "offsets"
_COMMITS: Final = "commits"
_NEWEST_OFFSETS: Final = 2  # the versions of Spark 4.2
_NEWEST_COMMITS: Final = 3
_NAMES_SOURCES: Final = 2  # since this version an offset stands behind the name of its source and a colon
_NO_BATCH: Final = -1
_NO_OFFSET: Final = "-"
_VERSION: Final = re.compile(r"v(\d{1,9})")
_PARTITION: Final = re.compile(r"\d{1,9}")
_LOG: Final = range(1 << 63)


class CheckpointUnreadable(Exception):
    """Why a folder is not read as a checkpoint, as the second half of a sentence."""


class Checkpoint(NamedTuple):
    """What a checkpoint says.

    Attributes:
        committed: the next record to read, by topic and partition; of two sources that read a partition the lower one.
        other_sources: how many sources of the query are not Kafka.
        finished_at: when its newest finished batch was, UTC microseconds; None before the first one.
        progress_at: when it last began or finished a batch, or was created.
    """

    committed: ByTopic
    other_sources: int
    finished_at: Micros | None
    progress_at: Micros


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a query, which may be running.

    Raises:
        CheckpointUnreadable: there is none, or a file of it is incomplete, or of a newer version than this program
            reads.
    """
    metadata = folder / "metadata"
    try:
        created_at, finished = _written_at(metadata), _newest_batch(folder / _COMMITS)
        while True:
            try:
                return _read_batch(folder, finished, created_at)
            except FileNotFoundError:
                before, finished = finished, _newest_batch(folder / _COMMITS)
                if finished == before:  # else Spark has deleted what is not the newest any more
                    raise
    except FileNotFoundError as error:
        if error.filename == str(metadata):
            raise CheckpointUnreadable(
                f"{folder} has no file metadata; name the folder that is the checkpointLocation of a query"
            ) from None
        raise CheckpointUnreadable(f"{error.filename} is missing") from None
    except OSError as error:
        raise CheckpointUnreadable(f"{error.filename} cannot be read: {error.strerror}") from None


def _read_batch(folder: Path, finished: int, created_at: Micros) -> Checkpoint:
    begun, progress_at = _newest_batch(folder / _OFFSETS), created_at
    if begun != _NO_BATCH:
        progress_at = max(progress_at, _written_at(folder / _OFFSETS / str(begun)))
    if finished == _NO_BATCH:
        return Checkpoint({}, 0, None, progress_at)
    commit, offsets = (folder / log / str(finished) for log in (_COMMITS, _OFFSETS))
    _, lines = _content(commit, _NEWEST_COMMITS)
    _parsed(commit, "\n".join(lines))
    version, (metadata, *sources) = _content(offsets, _NEWEST_OFFSETS)
    _parsed(offsets, metadata)
    if version >= _NAMES_SOURCES:
        sources = [line.partition(":")[2] for line in sources]
    if not sources or not all(sources):
        raise CheckpointUnreadable(f"{offsets} is incomplete")
    read = [_parsed(offsets, line) for line in sources if line != _NO_OFFSET]
    of_kafka = [each for each in read if _is_of_kafka(each)]
    finished_at = _written_at(commit)
    return Checkpoint(_lowest(of_kafka), len(read) - len(of_kafka), finished_at, max(progress_at, finished_at))


def _newest_batch(log: Path) -> int:
    """Return the highest number of a file of ``offsets`` or ``commits``; -1 for none."""
    try:
        return max((int(each.name) for each in log.iterdir() if each.name.isdecimal()), default=_NO_BATCH)
    except FileNotFoundError:
        return _NO_BATCH


def _content(path: Path, newest: int) -> tuple[int, list[str]]:
    """Return the version of a file, and its other lines, of which there is at least one."""
    head, *lines = path.read_bytes().decode(errors="replace").split("\n")
    match = _VERSION.fullmatch(head)
    if match is None or not lines:
        raise CheckpointUnreadable(f"{path} is incomplete")
    if int(match[1]) > newest:
        raise CheckpointUnreadable(
            f"{path} is of version {match[1]}, and this program reads up to {newest}: upgrade it"
        )
    return int(match[1]), lines


def _parsed(path: Path, text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; an empty text stands for no metadata."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        raise CheckpointUnreadable(f"{path} is incomplete") from None


def _is_of_kafka(offset: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether the offset of a source names topics, partitions and offsets."""
    return isinstance(offset, dict) and all(
        isinstance(of_topic, dict)
        and all(
            _PARTITION.fullmatch(number) and type(position) is int and position in _LOG
            for number, position in of_topic.items()
        )
        for of_topic in offset.values()
    )


def _lowest(sources: list[dict[str, dict[str, int]]]) -> ByTopic:
    lowest: ByTopic = {}
    for source in sources:
        for topic, of_topic in source.items():
            partitions = lowest.setdefault(topic, {})
            for number, position in of_topic.items():
                partitions[int(number)] = min(position, partitions.get(int(number), position))
    return lowest


def _written_at(path: Path) -> Micros:
    return Micros(path.stat().st_mtime_ns // 1000)
