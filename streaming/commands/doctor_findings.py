"""What a check of ``isrwatch doctor`` says, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SECONDS: Final = 5.0
"""How long one answer is waited for."""


class Status(StrEnum):
    """How a check ended; only a problem keeps isrwatch from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says; ``cluster`` is the one that it is about, of several."""

    check: str
    status: Status
    sentence: str
    cluster: str = ""


def numbered(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
