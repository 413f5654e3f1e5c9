"""The protocol that each kind of store implements, and the error for one that refuses or does not answer."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StoreError(OSError):
    """A store refused, or did not answer; one sentence with the store and the reason."""


class ObjectStatus(NamedTuple):
    """Size, time and identity of an object, known without reading it.

    Attributes:
        size: in bytes.
        modified_at: seconds since 1970, by the clock of the store.
        identity: differs after the object was replaced.
    """

    size: int
    modified_at: float
    identity: tuple[object, ...]


class Store(Protocol):
    """The six verbs of one kind of store. Names are keys below the root of the store; errors are ``OSError``."""

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless the name exists; return whether this call did."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object, or replace it."""

    def get(self, name: str) -> bytes:
        """Read an object; ``FileNotFoundError`` if there is none."""

    def names(self, folder: str) -> list[str]:
        """List the objects below a folder, as names within it, in order."""

    def head(self, name: str) -> ObjectStatus | None:
        """Return the status of an object; None if there is none."""

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
