"""Commits to ``partition_changes`` and is killed at a step of the N-th commit.

    python killed_writer.py PLACE file|draft|after N

``file`` is behind the data file, ``draft`` where the entry has no name yet (only some stores know such a moment),
``after`` is behind the entry. Options of the store stand in the environment as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from streaming.delta.changes.log import ChangeLog
from streaming.delta.log import writer
from streaming.delta.store.place import place_of
from tests.delta.test_change_log import changed

PLACE, POINT, NUMBER = place_of(sys.argv[1], json.loads(os.environ["OPTIONS"])), sys.argv[2], int(sys.argv[3])


def killed(call: Callable[..., Any], *, done: bool) -> Callable[..., Any]:
    """Kill this process where a call begins, or ends."""

    def called(*arguments: Any, **options: Any) -> Any:
        if done:
            call(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return called


_, rows = changed()
log = ChangeLog(PLACE)
for number in range(1, NUMBER):
    log.commit(rows, {"a": number})
if POINT == "draft":
    if PLACE.__class__.__name__ == "Url":
        from hdfs_native import Client

        Client.rename = killed(Client.rename, done=False)  # type: ignore[method-assign]
    else:
        os.link = killed(os.link, done=False)
else:
    writer.create = killed(writer.create, done=POINT == "after")
log.commit(rows, {"a": NUMBER})
