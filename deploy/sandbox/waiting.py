"""Waiting for a condition, never for a time: a loaded machine makes every guess wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS = 90.0


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS, every: float = 0.05) -> T:
    """Ask until the answer is true, and give it.

    Raises:
        TimeoutError: it was not within ``seconds``; the text says what was waited for.
    """
    end = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)
    return answer
