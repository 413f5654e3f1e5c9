"""A program: the job, without Spark, writes its tables to a small disk that is full again and again.

It runs where it may mount: ``unshare --mount python -m tests.jobs.shards.small_disk FOLDER``. It prints how often the
disk was full, and fails if the tables are not those of a job that had space all the time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from streaming.errors import IsrwatchError
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_power_cut import Disk, Job, check_whole

BYTES = 32 << 20
MOST_LEFT = 60_000  # about as much as a batch writes


def fill(folder: Path, left: int) -> Path:
    """Fill a disk but for some bytes; return the file that fills it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    os.truncate(ballast, max(0, ballast.stat().st_size - left))
    return ballast


def main() -> None:
    dice, story = random.Random(1), long_story(seed=1, steps=40)
    disk = Disk(Path(sys.argv[1]), dice)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "small", str(disk.tables)], check=True)
    job, refused = Job(disk, story), 0
    while job.position < len(story) - 1:
        ballast = fill(disk.tables, dice.randrange(MOST_LEFT))
        try:
            job.apply(dice.randrange(1, 12))
            job.follow()
        except IsrwatchError as error:
            if "the disk is full" not in str(error):
                raise
            refused += 1
            ballast.unlink()
            job = Job(disk, story)  # as the query that is started again
            job.apply(dice.randrange(1, 12))
        finally:
            ballast.unlink(missing_ok=True)
    job.follow()
    check_whole(disk, story)
    print(refused)


if __name__ == "__main__":
    main()
