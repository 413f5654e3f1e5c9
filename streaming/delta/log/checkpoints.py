"""Checkpoints of a table in a store, made without reading its log again.

delta-rs reads each entry four times for a checkpoint. So a writer copies its entries into a folder of this machine,
which begins with the checkpoint that is in the store; delta-rs makes the next one there, and it is put into the store.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from streaming.delta.log.storage import table_at
from streaming.delta.log.table_log import delete_log_before, log_objects, newest_checkpoint
from streaming.delta.store.objects import get, put, recall
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming.delta.store.place import Url


class CopiedLog:
    """The end of the log of a table, in a folder of this machine. Not for more than one thread at once."""

    def __init__(self, path: Url) -> None:
        """Copy nothing yet."""
        self._path = path
        self._folder: TemporaryDirectory[str] | None = None  # removed with this object
        self._version = -1

    def follow(self, version: int, entry: bytes) -> None:
        """Take over an entry that was just made."""
        if self._folder is not None and version == self._version + 1:
            put(log_objects(Path(self._folder.name), version)[0], entry)
            self._version = version

    def has_created_checkpoint(self, version: int) -> bool:
        """Create the checkpoint of a version in the store, and point readers at it; return whether that was possible.

        It is not if entries have expired, or where this machine has no room for temporary files.
        """
        try:
            self._create_checkpoint(version)
        except (DeltaError, OSError, TableUnreadable):
            self._folder = None
        return self._folder is not None

    def opened(self, version: int) -> DeltaTable | None:
        """Return the table, whose rows cannot be read, as its log says it is; None if that is not possible."""
        try:
            return table_at(self._copied(version), version)
        except (DeltaError, OSError, TableUnreadable):
            self._folder = None
        return None

    def _copied(self, version: int) -> Path:
        if self._folder is None or self._version != version:
            self._copy(version)
        assert self._folder is not None  # noqa: S101 - for the type checker
        return Path(self._folder.name)

    def _create_checkpoint(self, version: int) -> None:
        here = self._copied(version)
        table_at(here, version).create_checkpoint()
        _, *made = log_objects(here, version)
        for local, remote in zip(made, log_objects(self._path, version)[1:], strict=True):
            put(remote, get(local))
        delete_log_before(here, version)

    def _copy(self, version: int) -> None:
        """Copy the newest checkpoint, and the entries behind it."""
        self._folder, self._version = TemporaryDirectory(prefix="isrwatch-log-"), version
        here, begin = Path(self._folder.name), newest_checkpoint(self._path)
        if begin is not None:
            for local, remote in zip(log_objects(here, begin)[1:], log_objects(self._path, begin)[1:], strict=True):
                put(local, get(remote))
        for number in range(0 if begin is None else begin, version + 1):
            entry, _, _ = log_objects(self._path, number)
            put(log_objects(here, number)[0], recall(entry) or get(entry))
