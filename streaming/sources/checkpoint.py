"""The checkpoint file of a collector: one JSON file, replaced atomically.

It is stored below the bus, because it describes the content of that bus: with another bus it would be wrong. Its
checksum shows whether it is what was written; if it is, its values are believed.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from streaming.errors import FULL, BusFull, ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.identifiers import ClusterId


VERSION: Final = 1
_CHECKED: Final = re.compile(rb'\{"checksum":(\d+),"checkpoint":(.*)\}', re.DOTALL)


class DamagedCheckpoint(Exception):
    """A checkpoint is not what was written; the message is the reason."""


def read(path: Path, cluster_id: ClusterId) -> dict[str, Any] | None:
    """Return the checkpoint of a cluster, None when there is none yet.

    Raises:
        DamagedCheckpoint: it is not what was written.
        ConfigurationError: the file cannot be read, is of another version, or is of another cluster.
    """
    document = document_at(path)
    if document is None:
        return None
    if document.get("version") != VERSION:
        raise ConfigurationError(
            f"the checkpoint {path} has version {document.get('version')!r}, and this program writes {VERSION}: run "
            "the program that wrote it, or delete it to start again with a full report"
        )
    if document.get("cluster_id") != cluster_id:
        raise ConfigurationError(
            f"the checkpoint {path} is of cluster {document.get('cluster_id')}, but cluster.bootstrap_servers leads to "
            f"{cluster_id}; correct the address, or remove the checkpoint if the cluster was rebuilt"
        )
    return document


def document_at(path: Path) -> dict[str, Any] | None:
    """Return what was written at a path, of whatever version and cluster; None when there is nothing yet.

    Raises:
        DamagedCheckpoint: it is not what was written.
        ConfigurationError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
        checked = _CHECKED.fullmatch(data)
        if checked is None:
            raise DamagedCheckpoint("not a checkpoint")
        if int(checked[1]) != zlib.crc32(checked[2]):
            raise DamagedCheckpoint("its checksum is wrong")
        document = json.loads(checked[2])
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise ConfigurationError(
            f"cannot read the checkpoint {path}: {error.strerror}; run the collector as the user who owns it"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the checkpoint {path}: {error.strerror}; repair the disk, or point bus.directory (--bus) at "
            "another folder"
        ) from None
    except ValueError as error:
        raise DamagedCheckpoint(str(error)) from None
    if not isinstance(document, dict) or "version" not in document:
        raise DamagedCheckpoint("not a checkpoint")
    return document


def put_aside(path: Path, damage: Exception) -> str:
    """Rename a damaged checkpoint, to be examined; return the line to report."""
    aside = path.with_name(f"{path.name}.damaged")
    path.replace(aside)
    return f"the checkpoint is damaged ({damage}): it is kept as {aside}, and the log is read again"


def write(path: Path, document: dict[str, Any]) -> None:
    """Replace the checkpoint; after a crash there is the old one or the new one.

    The file is synced before the rename and the folder after it: otherwise a crash may leave an empty file.

    Raises:
        BusFull: the disk is full; what was begun is deleted.
        IsrwatchError: the disk refuses the write.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        body = json.dumps(document, separators=(",", ":")).encode()
        with partial.open("wb") as file:
            file.write(b'{"checksum":%d,"checkpoint":' % zlib.crc32(body) + body + b"}")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        sentence = (
            f"cannot write the checkpoint {path}: {error.strerror}; free space, repair the disk, or point "
            "bus.directory (--bus) at a folder that can be written"
        )
        if error.errno not in FULL:
            raise IsrwatchError(sentence) from error
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise BusFull(sentence) from error
