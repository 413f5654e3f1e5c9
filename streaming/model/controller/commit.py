"""What one operation of the controller leaves behind, and who may watch it do so. Values and an interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from streaming.contracts.records import RecordBatch
    from streaming.model.registrations import Transition

MICROS_PER_MS: Final = 1_000


class Commit(NamedTuple):
    """The batch as anybody may read it, and the true steps; ``now`` is model time in milliseconds."""

    now: int
    batch: RecordBatch
    transitions: tuple[Transition, ...]


class CommitProbe(Protocol):
    """An observer of the metadata log (see ``probe``)."""

    def committed(self, commit: Commit) -> None:
        """The controller wrote a batch to the metadata log."""
