"""The topics and leader epochs that were polled last, in a file: for what happens while no collector runs.

Controllers may be restored from a backup. Their epochs are lower for good then, as those of a broker that is cut off
are for a while; without the file the next collector could not distinguish what it polls from old news, which is
dropped. Topics may be hidden, which only who asks for them by name can distinguish from deleted ones.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import NO_LEADER, ClusterId, Micros, TopicId
from streaming.errors import IsrwatchError
from streaming.sources import checkpoint
from streaming.sources.admin_view import ClusterView, PartitionView
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from pathlib import Path

_WRITTEN_EVERY: Final = Micros(30_000_000)


class SeenEpochs:
    """Remembers the topics and leader epochs of the newest view.

    Args:
        path: of the file; None: they are forgotten.

    Attributes:
        before: the partitions that the collector before this one polled, with nothing but their epochs; None if there
            was none, or its file is damaged.

    Raises:
        ConfigurationError: the file cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._due = Timer(_WRITTEN_EVERY)
        self._written: ClusterView | None = None
        self.before = None if path is None else _read(path)

    def remember(self, view: ClusterView) -> None:
        """Write the epochs of a view if it is due; what a full disk refuses is written the next time."""
        if self._path is None or not self._due.take_due(monotonic()):
            return
        last = self._written
        if last is not None and (last.topics, last.topic_ids) == (view.topics, view.topic_ids):
            return
        topics = {
            name: [view.topic_ids[name], {number: part.leader_epoch for number, part in parts.items()}]
            for name, parts in view.topics.items()
        }
        document = {"version": checkpoint.VERSION, "cluster_id": view.cluster_id, "topics": topics}
        with suppress(IsrwatchError):
            checkpoint.write(self._path, document)
            self._written = view


def _read(path: Path) -> ClusterView | None:
    try:
        document = checkpoint.document_at(path)
    except checkpoint.DamagedCheckpoint:
        return None
    if document is None or document["version"] != checkpoint.VERSION:
        return None
    return ClusterView(
        cluster_id=ClusterId(document["cluster_id"]),
        answered_by=-1,
        brokers={},
        topics={
            name: {int(number): PartitionView((), (), NO_LEADER, leader_epoch=epoch) for number, epoch in parts.items()}
            for name, (_, parts) in document["topics"].items()
        },
        topic_ids={name: TopicId(topic_id) for name, (topic_id, _) in document["topics"].items()},
    )
