"""When Python's garbage collector may run.

Reference counts free what a batch leaves behind; the collector only looks for cycles. To find none it walks every
object again and again, and the states of a large cluster are millions that live long.
"""

from __future__ import annotations

import atexit
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collected_after() -> Iterator[None]:
    """Let the garbage collector of this process wait for the end of a batch; also as a decorator."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def never_collected() -> Iterator[None]:
    """Create millions of long-lived objects that the garbage collector never scans, neither now nor later."""
    with collected_after():
        yield
        freeze()  # not after a failure: what it leaves behind is garbage


def freeze() -> None:
    """Exclude every object that there is from garbage collection until the process ends."""
    if not gc.get_freeze_count():
        atexit.register(gc.unfreeze)  # what is not freed at the end, libraries report on the terminal as leaked
    gc.freeze()
