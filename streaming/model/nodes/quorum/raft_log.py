"""The metadata log of one controller, and what else a voter keeps on disk. Knows no roles and no time.

Offsets and epochs are those of any replica (``storage.log``); the batches themselves stand next to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.constants import Error
from streaming.model.storage.log import Log
from streaming.model.storage.replica import check_fetch, truncation_point

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.quorum import Entry
    from streaming.model.storage.log import EpochEntry


class RaftLog:
    """Batches, ordered by offset.

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
        """Start of the newest epoch. Enabled while there is one."""
        return self._offsets.epochs[-1][1]

    @property
    def position(self) -> tuple[int, int]:
        """End of this log, for comparing it with another one's: a newer epoch outweighs any length."""
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
        suffix = self.entries[len(self.entries) - newest :]
        return tuple(entry for entry in suffix if entry.base_offset < end)

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Tell where an epoch ended."""
        return self._offsets.end_offset_for(epoch)

    def diverges_from(self, epoch: int, offset: int) -> EpochEntry | None:
        """Leader: compare with a follower that is at ``offset`` after a batch of ``epoch``; None if they agree."""
        divergence = check_fetch(self._offsets, offset, epoch)
        assert not isinstance(divergence, Error), f"no log is at {offset} after epoch {epoch}"  # noqa: S101 - log matching
        return divergence

    def truncate_to_diverging(self, diverging: EpochEntry) -> None:
        """Follower: drop what the leader does not have; where an epoch is missing, the next fetch asks again."""
        self._offsets.truncate(truncation_point(self._offsets, 0, diverging).offset)
        while self.entries and self.entries[-1].base_offset >= self.end:
            self.entries.pop()

    def forget(self, offset: int) -> None:
        """Drop the batches below ``offset``; every voter has them."""
        kept = 0
        while kept < len(self.entries) and self.entries[kept].end_offset <= offset:
            kept += 1
        del self.entries[:kept]


class QuorumDisk:
    """The log and the ``quorum-state`` file: the newest epoch, and the candidate that this voter voted for in it.

    Both must be on disk before an answer leaves: a voter that forgot its vote in a restart would give a second one in
    the same epoch, and there would be two leaders. Invariant: ``epoch`` ≥ the log's last epoch, never falls; ``voted``
    changes only with it, or from None.
    """

    def __init__(self) -> None:
        self.log = RaftLog()
        self.epoch = 0
        self.voted: BrokerId | None = None
