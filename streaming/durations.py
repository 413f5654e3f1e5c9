"""Durations as Prometheus writes them: ``5s``, ``30m``, ``1h30m``, ``90d``. Inside they are seconds.

One spelling holds for the configuration and for options of commands. A number without a unit is refused: it would be
seconds of one key and days of another one.
"""

from __future__ import annotations

import math
import re
from typing import Final

from streaming.errors import ConfigurationError

FOREVER: Final = "forever"
"""The word instead of a duration, where a key has no bound."""
SECONDS_OF: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
"""Every unit, with its seconds."""
DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
"""Every duration but ``forever``: numbers with their units."""
_PART: Final = re.compile(r"([\d.]+)(ms|[smhdw])")
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


def seconds_of(key: str, text: object) -> float:
    """Parse a duration, to the millisecond.

    Args:
        key: the setting or the option that has it.
        text: what was written there.

    Raises:
        ConfigurationError: it is none, or a number without a unit; the sentence names the key.

    >>> seconds_of("--for", "90s"), seconds_of("--for", "1h30m"), seconds_of("--for", "250ms")
    (90.0, 5400.0, 0.25)
    """
    if isinstance(text, str) and DURATION.fullmatch(text):
        return round(sum(float(number) * SECONDS_OF[unit] for number, unit in _PART.findall(text)), 3)
    number = str(text).strip()
    if _NUMBER.fullmatch(number):
        written = ", ".join(f'"{number}{unit}"' for unit in ("s", "m", "h"))
        raise ConfigurationError(f'{key} is {number}, without a unit; write {written} or "{number}d"')
    raise ConfigurationError(f'{key} is {text!r}; write a duration with its unit, such as "30s", "5m", "2h" or "90d"')


def duration_text(seconds: float) -> str:
    """Format a duration as it is written in the configuration, in the largest unit that leaves whole numbers.

    >>> [duration_text(seconds) for seconds in (0.1, 5, 90, 300, 604_800, 7_776_000, math.inf)]
    ['100ms', '5s', '90s', '5m', '7d', '90d', 'forever']
    """
    if math.isinf(seconds * 1_000):
        return FOREVER
    millis = round(seconds * 1_000)
    for unit in ("d", "h", "m", "s"):
        whole, rest = divmod(millis, int(SECONDS_OF[unit] * 1_000))
        if whole and not rest:
            return f"{whole}{unit}"
    return f"{millis}ms" if millis else "0s"
