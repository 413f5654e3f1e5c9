"""Findings of the checks of ``isrwatch doctor``, and their words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SECONDS: Final = 5.0
"""Longest wait for one answer."""


class Status(StrEnum):
    """Result of a check; only a problem keeps isrwatch from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Sentence of one check; ``cluster`` is the one that it is about, of several."""

    check: str
    status: Status
    sentence: str
    cluster: str = ""


def numbered(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
