"""HDFS through hdfs-native, which needs no Java.

A new file is visible while it is still empty, and complete only once it is closed. So objects are written under a
draft's name, and renamed: without overwriting, the name node lets only one of several writers win.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hdfs_native import Client, WriteOptions

from streaming.delta.store.place import ObjectStatus, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.delta.store.place import Url

_MILLIS = 1000


class Hdfs:
    """One name service. Implements :class:`streaming.delta.store.place.Store`."""

    def __init__(self, root: Url) -> None:
        self._root = root
        self._client = Client(root.text, dict(root.options) or None)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless the name exists; return whether this call did."""
        return self._renamed(name, content, overwrite=False)

    def put(self, name: str, content: bytes) -> None:
        """Write an object, or replace it."""
        self._renamed(name, content, overwrite=True)

    def get(self, name: str) -> bytes:
        """Read an object; ``FileNotFoundError`` if there is none."""
        with self._asked():
            return bytes(self._client.read(f"/{name}").read())

    def names(self, folder: str) -> list[str]:
        """List the objects below a folder, as names within it, in order."""
        with suppress(FileNotFoundError), self._asked():
            files = [each.path for each in self._client.list_status(f"/{folder}", recursive=True) if not each.isdir]
            return sorted(name for path in files if (name := path.partition(f"/{folder}/")[2]))
        return []

    def head(self, name: str) -> ObjectStatus | None:
        """Return the status of an object; None if there is none."""
        try:
            with self._asked():
                answer = self._client.get_file_info(f"/{name}")
        except FileNotFoundError:
            return None
        return ObjectStatus(
            answer.length, answer.modification_time / _MILLIS, (answer.length, answer.modification_time)
        )

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
        with suppress(FileNotFoundError), self._asked():
            self._client.delete(f"/{name}")

    def _renamed(self, name: str, content: bytes, *, overwrite: bool) -> bool:
        """Write a draft, and rename it; return whether it got the name."""
        folder, _, last = name.rpartition("/")
        draft = f"/{folder}/.{last}.{secrets.token_hex(4)}.draft"
        with self._asked(), self._client.create(draft, WriteOptions(overwrite=True)) as file:
            file.write(content)
        try:
            with self._asked():
                self._client.rename(draft, f"/{name}", overwrite=overwrite)
        except StoreError:
            exists = not overwrite and self.head(name) is not None
            with suppress(OSError):
                self._client.delete(draft)
            if not exists:
                raise
            return False
        return True

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Turn the errors of the client into those of the system."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StoreError(f"{self._root} failed: {first}") from error
