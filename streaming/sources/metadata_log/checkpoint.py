"""The checkpoint file of a collector: one JSON file, replaced atomically.

It is stored below the bus, because it describes the content of that bus: with another bus it would be wrong.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.identifiers import ClusterId


VERSION: Final = 1


def read(path: Path, cluster_id: ClusterId) -> dict[str, Any] | None:
    """Return the checkpoint of a cluster, None when there is none yet.

    Raises:
        ConfigurationError: the file cannot be read, is no checkpoint of this version, or is of another cluster.
    """
    document = _read(path)
    if document is None:
        return None
    if document.get("version") != VERSION:
        raise unusable(path, f"version {document.get('version')!r}")
    if document.get("cluster_id") != cluster_id:
        raise ConfigurationError(
            f"the checkpoint {path} is of cluster {document.get('cluster_id')}, but cluster.bootstrap_servers leads to "
            f"{cluster_id}; correct the address, or remove the checkpoint if the cluster was rebuilt"
        )
    return document


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise ConfigurationError(
            f"cannot read the checkpoint {path}: {error.strerror}; run the collector as the user who owns it"
        ) from None
    except (OSError, ValueError) as error:
        raise unusable(path, str(error)) from None
    if not isinstance(document, dict):
        raise unusable(path, "not a JSON object")
    return document


def write(path: Path, document: dict[str, Any]) -> None:
    """Replace the checkpoint; after a crash there is the old one or the new one.

    The file is synced before the rename and the folder after it: otherwise a crash may leave an empty file.

    Raises:
        IsrwatchError: the disk refuses the write.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            json.dump(document, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise IsrwatchError(
            f"cannot write the checkpoint {path}: {error.strerror}; free space or repair the disk"
        ) from error


def unusable(path: Path, reason: str) -> ConfigurationError:
    """Return the error for a checkpoint that cannot be used, with the fix."""
    return ConfigurationError(
        f"the checkpoint {path} cannot be used: {reason}; delete it to start again with a full report"
    )
