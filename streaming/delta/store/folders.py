"""Folders of this machine as a store: each verb is a system call or three."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.delta.store.contract import ObjectStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.delta.store.contract import Store

_DRAFT: Final = ".draft"


class _LocalFolders:
    """Folders of this machine; names are paths."""

    def create(self, name: str, content: bytes) -> bool:
        with _draft(name, content) as draft:
            try:
                os.link(draft, name)  # noqa: PTH - fails where the name exists
            except FileExistsError:
                return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with _draft(name, content) as draft:
            draft.replace(name)

    def get(self, name: str) -> bytes:
        return Path(name).read_bytes()

    def names(self, folder: str) -> list[str]:
        return sorted(_files_below(folder))

    def head(self, name: str) -> ObjectStatus | None:
        try:
            status = os.stat(name)  # noqa: PTH116 - called hundreds of times a second: a Path takes four times as long
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectStatus(status.st_size, status.st_mtime, (status.st_ino, status.st_mtime_ns))

    def delete(self, name: str) -> None:
        Path(name).unlink(missing_ok=True)


LOCAL: Final[Store] = _LocalFolders()


@contextmanager
def _draft(name: str, content: bytes) -> Iterator[Path]:
    """Write a file next to another one, under a name that no reader looks for, and delete it in the end."""
    draft = Path(name).with_name(f".{Path(name).name}.{secrets.token_hex(4)}{_DRAFT}")
    try:
        try:
            draft.write_bytes(content)
        except FileNotFoundError:
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(content)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _files_below(folder: str, above: str = "") -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path, f"{above}{entry.name}/")
            else:
                yield above + entry.name
