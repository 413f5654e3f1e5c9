"""Options of the bus as a Spark source, by name.

Besides ``directory``, ``channel`` and ``maxBytesPerTrigger``:

- ``repeatedBlocks``: file with the digests of blocks to leave out (``left_out_blocks``); without it all are read.
- ``waitSeconds``: how long an empty batch waits for new records; 0 for a query with a trigger interval.
- ``startingPositions``: position and log id by source where to begin, as JSON; other logs begin at their oldest record.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY: Final = "directory"
CHANNEL: Final = "channel"
MAX_BYTES: Final = "maxBytesPerTrigger"
REPEATED: Final = "repeatedBlocks"
WAIT_SECONDS: Final = "waitSeconds"
STARTING_POSITIONS: Final = "startingPositions"
DEFAULT_MAX_BYTES: Final = 32 * 1024 * 1024

# Without a trigger interval Spark asks for the latest offset again at once. While nothing is new the source delays its
# answer for this long and watches the bus, so that an idle query costs little and new records are read soon.
DEFAULT_WAIT_SECONDS: Final = 0.5


def checked_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the checked options of a source.

    Raises:
        ConfigurationError: an option is missing or wrong; names it and the fix.
    """
    for name in (DIRECTORY, CHANNEL):
        if name not in options:
            raise ConfigurationError(f"the bus needs the option {name!r}: add .option({name!r}, ...)")
    channel = options[CHANNEL]
    if channel not in set(Channel):
        raise ConfigurationError(f"the bus has no channel {channel!r}; use {', '.join(Channel)}")
    limit = options.get(MAX_BYTES, str(DEFAULT_MAX_BYTES))
    if not limit.isdecimal() or int(limit) == 0:
        raise ConfigurationError(f"{MAX_BYTES} is {limit!r}; use a number of bytes above 0")
    wait = options.get(WAIT_SECONDS, str(DEFAULT_WAIT_SECONDS))
    if not re.fullmatch(r"\d+(\.\d+)?", wait):
        raise ConfigurationError(f"{WAIT_SECONDS} is {wait!r}; use a number of seconds, 0 or more")
    return {
        "starting_positions": _positions(options.get(STARTING_POSITIONS, "{}")),
        "directory": Path(options[DIRECTORY]),
        "channel": Channel(channel),
        "max_bytes": int(limit),
        "repeated": Path(options[REPEATED]) if REPEATED in options else None,
        "wait_seconds": float(wait),
    }


def _positions(text: str) -> dict[str, LogPosition]:
    try:
        return {
            str(source): LogPosition(int(position), log_id) for source, (position, log_id) in json.loads(text).items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigurationError(
            f"{STARTING_POSITIONS} is {text!r}; use a JSON object of pairs: position and log id"
        ) from None
