"""The metadata log of one controller, and what else a voter keeps on disk. Knows no roles and no time.

Offsets and epochs are those of any replica (``storage.log``); beside them stand the batches themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.model.messages.errors import Error
from streaming.model.storage.log import Log
from streaming.model.storage.truncation import check_fetch, truncation_point

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId
    from streaming.model.storage.log import EpochEntry


class Entry(NamedTuple):
    """A batch at ``[base_offset, end_offset)``; Raft does not look at what it carries."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: Any


class RaftLog:
    """Batches in the order of their offsets.

    Departs from Kafka: there are no snapshots; batches are kept until every voter has them, whole processes that are
    down included.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._offsets = Log()

    @property
    def end(self) -> int:
        """The next offset to write."""
        return self._offsets.end

    @property
    def last_epoch(self) -> int:
        """Epoch of the newest batch, -1 for an empty log."""
        return self._offsets.last_epoch

    @property
    def epoch_start(self) -> int:
        """Where the newest epoch begins. Enabled while there is one."""
        return self._offsets.epochs[-1][1]

    @property
    def position(self) -> tuple[int, int]:
        """How far this log is, for comparing it with another one's: a newer epoch outweighs any length."""
        return self.last_epoch, self.end

    def append(self, entry: Entry) -> None:
        """Write the next batch."""
        assert entry.base_offset == self.end, f"a batch at {entry.base_offset}, the log ends at {self.end}"  # noqa: S101 - log matching
        self._offsets.begin_epoch(entry.epoch, entry.base_offset)
        self._offsets.append(entry.end_offset - entry.base_offset)
        self.entries.append(entry)

    def entries_between(self, offset: int, end: int) -> tuple[Entry, ...]:
        """Give the batches that begin in ``[offset, end)``."""
        newest = 0
        while newest < len(self.entries) and self.entries[-1 - newest].base_offset >= offset:
            newest += 1
        found = self.entries[len(self.entries) - newest :]
        return tuple(entry for entry in found if entry.base_offset < end)

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Tell where an epoch ended."""
        return self._offsets.end_offset_for(epoch)

    def diverges_from(self, epoch: int, offset: int) -> EpochEntry | None:
        """Leader: compare with a follower that is at ``offset`` after a batch of ``epoch``; None if they agree."""
        found = check_fetch(self._offsets, offset, epoch)
        assert not isinstance(found, Error), f"nobody is at {offset} after epoch {epoch}"  # noqa: S101 - log matching
        return found

    def truncate_to_diverging(self, diverging: EpochEntry) -> None:
        """Follower: drop what the leader does not have; where an epoch is missing, the next fetch asks again."""
        self._offsets.truncate(truncation_point(self._offsets, 0, diverging).offset)
        while self.entries and self.entries[-1].base_offset >= self.end:
            self.entries.pop()

    def forget(self, offset: int) -> None:
        """Let go of the batches below ``offset``; everybody has them."""
        kept = 0
        while kept < len(self.entries) and self.entries[kept].end_offset <= offset:
            kept += 1
        del self.entries[:kept]


class QuorumDisk:
    """The log and the ``quorum-state`` file: the newest epoch, and whom this voter voted for in it."""

    def __init__(self) -> None:
        self.log = RaftLog()
        self.epoch = 0
        self.voted: BrokerId | None = None
