"""How many examples Hypothesis draws: few where one waits, twenty times as many in ``make test-long``."""

from __future__ import annotations

import os
from typing import Final

SHARE: Final = {"quick": 0.25, "test": 0.5, "long": 10.0}
"""ISRWATCH_EXAMPLES: by how much the number at a test is multiplied."""
DRAWN: Final = os.environ.get("ISRWATCH_EXAMPLES") or "test"


def examples(number: int) -> int:
    """Scale the number of examples of a test to the run at hand; at least one.

    Raises:
        KeyError: ISRWATCH_EXAMPLES is none of quick, test and long.
    """
    return max(1, round(number * SHARE[DRAWN]))
