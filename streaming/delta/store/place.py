"""Places of tables: a local folder, or the URL of a folder in an object store or in HDFS."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from streaming.errors import ConfigurationError
from streaming.secret_values import storage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.settings import Settings


SCHEMES: Final = {
    "s3": "S3, or a server that speaks its protocol",
    "abfss": "Azure Blob Storage (Data Lake Gen2)",
    "az": "Azure Blob Storage",
    "gs": "Google Cloud Storage",
    "hdfs": "HDFS",
}
"""The schemes of URLs of tables, besides ``file``."""
PATIENCE: Final = {"timeout": "10s", "max_retries": "4", "retry_timeout": "20s"}
"""Default limits of a client that waits for a store: a minute at most."""
_AT_ONCE: Final = 16
A = TypeVar("A")
B = TypeVar("B")
_OF_OTHER_CLIENTS: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "gcs": "gs"}
"""Schemes of Hadoop and others for a store that has a scheme here."""
_WITH_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True)
class Url:
    """The URL of a folder or an object, and the options of the client of its store.

    Attributes:
        text: without a slash at its end.
        options: keys and values as the clients of S3, Azure, Google or Hadoop name them; may be secret.
    """

    text: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __truediv__(self, name: str) -> Url:
        """Return a place within this folder."""
        return replace(self, text=f"{self.text}/{name}")

    def __str__(self) -> str:
        """Return the URL alone."""
        return self.text

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The folder of this place."""
        return replace(self, text=self.text.rpartition("/")[0])

    @property
    def root(self) -> Url:
        """The bucket, container or name node."""
        parts = urlsplit(self.text)
        return replace(self, text=f"{parts.scheme}://{parts.netloc}")

    @property
    def key(self) -> str:
        """The path below the root, without a slash at its beginning."""
        return urlsplit(self.text).path.lstrip("/")


Place = Path | Url
"""Both have ``/``, ``name``, ``parent`` and ``str()``; other uses check which it is."""


def tables_place(settings: Settings, option: str | None = None) -> Place:
    """Return the place of the tables: ``--tables``, else ``tables.directory``, with the options of their store.

    Raises:
        ConfigurationError: tables cannot be there, or a secret of the options cannot be read.
    """
    return place_of(option or settings.tables.directory, storage_of(settings))


def place_of(text: str, options: Mapping[str, str] | None = None, where: str = "tables.directory (--tables)") -> Place:
    """Return the place that a user has written as a path or a URL; errors say ``where``.

    Raises:
        ConfigurationError: the scheme is not one of ``SCHEMES``, or the URL has no bucket.
    """
    scheme = text.partition(":")[0]
    if not _WITH_SCHEME.match(text):
        return Path(text)
    if scheme == "file":
        return Path(url2pathname(urlsplit(text).path))
    if (ours := _OF_OTHER_CLIENTS.get(scheme)) is not None:
        raise ConfigurationError(f"tables.directory (--tables) begins with {scheme}://: write {ours}:// in its place")
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{each}://" for each in sorted(SCHEMES))
        raise ConfigurationError(
            f"{where} begins with {scheme}:/, where no tables can lie: write the path of a folder, "
            f"or a URL that begins with {schemes}"
        )
    if not urlsplit(text).netloc:
        raise ConfigurationError(f"{where} is {text}, which names no bucket: write {scheme}://BUCKET/FOLDER")
    return Url(text.rstrip("/"), tuple(sorted((options or {}).items())))


def at_once(place: Place, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Do work for each item, in order in a folder, and several at once in a store, where it waits for requests."""
    if isinstance(place, Path):
        return [work(each) for each in items]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(work, items))


def options_of(place: Place) -> dict[str, str] | None:
    """Return the options with which delta-rs opens a table at a place."""
    return {**PATIENCE, **dict(place.options)} if isinstance(place, Url) else None


# The protocol that each kind of store implements, and the error for one that refuses or does not answer.


class StoreError(OSError):
    """A store refused, or did not answer; one sentence with the store and the reason."""


class ObjectStatus(NamedTuple):
    """Size in bytes, time by the clock of the store, and identity of an object, known without reading it.

    The identity differs after the object was replaced.
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
