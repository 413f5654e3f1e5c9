"""What to do when a record of the metadata log cannot be read, and the warning before that.

A record of a newer version that changes topics, partitions or brokers leaves the state unknown. Only a KRaft snapshot
that was taken after it contains the state again, in records that can perhaps be read. Of a damaged snapshot a repaired
copy does. The log itself is followed meanwhile, so that the connection is there, but nothing of it can be applied.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.contracts.records import RegisterController
from streaming.sources.metadata_log.schemas import NEWEST_METADATA_VERSION
from streaming.sources.metadata_log.tail import NOTHING, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.sources.image import ClusterImage
    from streaming.sources.metadata_log.snapshot import LoadedSnapshot
    from streaming.sources.metadata_log.tail import Tail

RESYNC_SECONDS: Final = 10.0


class Resync:
    """The search for a KRaft snapshot from after the record that could not be read.

    Args:
        seconds: interval of the search.
        report: takes one line for the user.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self._seconds, self._report = seconds, report
        self._after: int | None = None  # the offset that a snapshot must end after; None while the image is whole
        self._damaged: LoadedSnapshot | None = None
        self._due = 0.0

    def note(self, image: ClusterImage, snapshot: LoadedSnapshot | None) -> None:
        """Say once that the image has become incomplete; ``snapshot`` is what it has just been loaded from, if any."""
        if image.incomplete_since is None:
            self._after = self._damaged = None
            return
        if self._after is not None:
            return
        self._after = image.incomplete_since
        if snapshot is not None and snapshot.is_damaged:
            self._damaged = snapshot
            self._report(
                f"no data from the metadata log: the controller's KRaft snapshot before offset {snapshot.end.offset} "
                f"is damaged ({image.incomplete_because}). Looking for it repaired, or a newer one"
            )
            return
        self._report(
            f"no data from the metadata log: its record at offset {image.incomplete_since} cannot be read "
            f"({image.incomplete_because}); upgrade isrwatch if Kafka was upgraded. Looking for a KRaft snapshot from "
            "after it"
        )

    def search(self, tail: Tail, progress: Progress) -> Progress:
        """Drop what was read, because it cannot be applied; when it is time, look for another KRaft snapshot."""
        if progress.rewritten or progress.snapshot is not None:
            return progress
        if self._after is None or time.monotonic() < self._due:
            return NOTHING
        self._due = time.monotonic() + self._seconds
        snapshot = tail.snapshot_after(self._after)
        if snapshot is None or snapshot == self._damaged:
            return NOTHING
        self._damaged = snapshot if snapshot.is_damaged else None
        self._after = snapshot.unread_until  # if it cannot be read, either
        return Progress(snapshot=snapshot)


class NewerRecords:
    """Warns of record versions that this program cannot read, before the cluster writes them."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._newest = NEWEST_METADATA_VERSION

    def warn(self, metadata_version: int | None, progress: Progress) -> None:
        """Warn once per level of metadata.version, as soon as a controller supports it."""
        batches = (*(progress.snapshot.batches if progress.snapshot else ()), *progress.batches)
        supported = [
            record.newest_metadata_version or 0
            for batch in batches
            for record in batch.records
            if isinstance(record, RegisterController)
        ]
        newest = max(metadata_version or 0, *supported, 0)
        if newest > self._newest:
            self._newest = newest
            self._report(
                f"this cluster is of a newer Kafka (metadata.version {newest}) than this program "
                f"({NEWEST_METADATA_VERSION}): upgrade isrwatch before its metadata records cannot be read any more"
            )
