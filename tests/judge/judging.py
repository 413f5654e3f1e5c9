"""One seed judged, as a process of the pool does it; and where seeds come from."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Iterator

from tests.judge.play import played
from tests.judge.results import Result, result_of


def seeds(root: str, count: int) -> Iterator[int]:
    """Draw the seeds of plays from the id of a commit, or from a seed of development."""
    for number in range(count):
        yield int.from_bytes(hashlib.sha256(f"{root}/{number}".encode()).digest()[:5], "big")


def judged(seed: int, kinds: tuple[str, ...]) -> Result:
    """Play and judge one seed; a play that fails is a result, too."""
    began = time.process_time()
    try:
        return result_of(played(seed, kinds), time.process_time() - began)
    except Exception:  # noqa: BLE001 - one play must not end the others, and its error is shown
        return {"seed": seed, "failed": traceback.format_exc()}
