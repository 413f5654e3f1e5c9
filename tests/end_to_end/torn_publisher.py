"""Publishes a story to the bus and is killed in the middle of a record: half of its bytes reach the file.

python torn_publisher.py BUS SEED RECORDS
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from streaming.bus import log
from streaming.bus.directory import DirectoryPublisher
from tests.end_to_end.stories import long_story

bus, seed, records = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
publisher = DirectoryPublisher(bus, segment_bytes=4096)
story = long_story(seed)
for observed in story[:records]:
    publisher.publish([observed])
write = os.write


def write_half(file: int, data: bytes) -> int:
    write(file, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


log.os.write = write_half  # type: ignore[assignment]
publisher.publish([story[records]])
