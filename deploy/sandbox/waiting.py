"""Waiting for a condition instead of a fixed time, which is wrong on a loaded machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS = 90.0


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS, every: float = 0.05) -> T:
    """Evaluate a condition until its result is true, and return that.

    Raises:
        TimeoutError: it was not true within ``seconds``; the message contains ``what``.
    """
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)
    return result
