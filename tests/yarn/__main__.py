"""``python -m tests.yarn FOLDER``: a YARN of this machine to try the job on, until Ctrl-C; it says when it is ready.

FOLDER/conf is the HADOOP_CONF_DIR of those who submit; HDFS is empty at each start.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from pathlib import Path

from tests.yarn.cluster import YarnCluster


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    root = Path(sys.argv[1]).absolute()
    shutil.rmtree(root / "data", ignore_errors=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    cluster = YarnCluster(root)
    try:
        cluster.start()
        print(
            f"YARN is ready: HADOOP_CONF_DIR={cluster.conf}, hdfs://127.0.0.1:{cluster.hdfs.port}, {cluster.page}",
            flush=True,
        )
        ended.wait()
    finally:
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
