"""What to do when a record of the metadata log cannot be read, and the warning before that.

A record of a newer version that changes topics, partitions or brokers leaves the state unknown. Only a KRaft snapshot
that was taken after it contains the state again, in records that can perhaps be read. The log itself is followed
meanwhile, so that the connection is there, but nothing of it can be applied.
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
        self._due = 0.0

    def note(self, image: ClusterImage) -> None:
        """Say once that the image has become incomplete."""
        if image.incomplete_since is None:
            self._after = None
        elif self._after is None:
            self._after = image.incomplete_since
            self._report(
                f"no data from the metadata log: its record at offset {image.incomplete_since} cannot be read "
                f"({image.incomplete_because}); upgrade isrwatch if Kafka was upgraded. Looking for a KRaft snapshot "
                "from after it"
            )

    def search(self, tail: Tail, progress: Progress) -> Progress:
        """Drop what was read, because it cannot be applied; when it is time, look for a newer KRaft snapshot."""
        if progress.rewritten or progress.snapshot is not None:
            return progress
        if self._after is None or time.monotonic() < self._due:
            return NOTHING
        self._due = time.monotonic() + self._seconds
        snapshot = tail.snapshot_after(self._after)
        if snapshot is not None:
            self._after = snapshot.end.offset  # if it cannot be read, either: only one that is newer still
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
