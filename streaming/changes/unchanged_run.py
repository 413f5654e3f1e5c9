"""Consecutive observations that changed nothing, as one value: most of a full report repeats the state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from streaming.contracts.identifiers import Offset
from streaming.contracts.observations import Observation, require


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedRun(Observation):
    """The observations ``first_sequence`` to ``sequence`` of a source, which changed nothing.

    It replaces them where they are decoded; it is never published and never encoded. The other fields are those of the
    newest observation that it replaces.
    """

    kind: ClassVar[str] = "confirmed"
    in_snapshot: ClassVar[bool] = True

    first_sequence: int
    metadata_offset: Offset | None = None

    def __post_init__(self) -> None:
        """Refuse a run that ends before it begins, and one without sequence numbers."""
        Observation.__post_init__(self)
        require(1 <= self.first_sequence <= self.sequence, f"no run: {self.first_sequence} to {self.sequence}")

    def first_after(self, applied: int) -> UnchangedRun:
        """Return the first observation of the run behind an applied number, as a run of one."""
        first = max(self.first_sequence, applied + 1)
        return replace(self, first_sequence=first, sequence=first)
