"""``python -m tests.systemd.story``: publishes a long story to a bus, and compares tables with it, within the machine.

publish BUS FIRST LAST PAUSE   its observations from FIRST to LAST, a few at a time, with a pause in seconds
compare TABLES                 prints how many of its observations the tables hold: they are those of a fold up to
there, or this fails
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import QueryBuilder

from streaming.bus.directory import DirectoryPublisher
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.log.storage import open_table
from tests.end_to_end.stories import essence, long_story

STORY: Final = long_story(seed=44, steps=3000)
AT_ONCE: Final = 5


def publish(bus: Path, first: int, last: int, pause: float) -> None:
    with closing(DirectoryPublisher(bus, segment_bytes=1 << 26)) as publisher:
        for begin in range(first, last, AT_ONCE):
            publisher.publish(STORY[begin : min(begin + AT_ONCE, last)])
            time.sleep(pause)


def compare(tables: Path) -> tuple[int, int]:
    """Return how many changes the tables hold, and how many the whole story has; they are the first of these."""
    opened = open_table(tables / PARTITION_CHANGES.name)
    found = []
    if opened is not None:
        asked = QueryBuilder().register("t", opened).execute("select * from t order by version, ordinal")
        found = essence(pa.table(asked).to_pylist())
    every = changes_to_arrow(fold(ReplicationState(), STORY).changes).to_pylist()
    every = [row for row in every if row["subject"] != Subject.SOURCE]
    assert found == essence(every[: len(found)]), f"{len(found)} changes are not the first ones of a fold"
    return len(found), len(every)


def main() -> None:
    match sys.argv[1:]:
        case ["publish", bus, first, last, pause]:
            publish(Path(bus), int(first), int(last), float(pause))
        case ["compare", tables]:
            print(*compare(Path(tables)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
