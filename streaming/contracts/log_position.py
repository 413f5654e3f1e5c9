"""Where a record stands on the bus: its position, and the identity of the part of the log that holds it."""

from __future__ import annotations

from typing import Final, NamedTuple


class LogPosition(NamedTuple):
    """A position, and what distinguishes its log from every other one that this source has had.

    Each time that a log is opened to be written it gets a new random identity, which stands in the names of the
    segments written since. So a copy of a log that is written on is distinguished from the log it was copied from.

    Attributes:
        position: bytes before the record.
        log_id: the identity; None where nothing was read of a log.
    """

    position: int
    log_id: int | None


NOWHERE: Final = LogPosition(-1, None)
"""The position of a source of which nothing was applied."""
