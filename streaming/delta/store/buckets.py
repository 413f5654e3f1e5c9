"""Object stores through obstore: S3 and compatible servers, Azure Blob Storage, Google Cloud Storage."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from streaming.delta.store.place import PATIENCE, ObjectStatus, StoreError
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore

    from streaming.delta.store.place import Url

CLIENT_KEYS: Final = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url"})
"""Keys of options of the connection; all others are of the store."""
_ALIKE: Final = CLIENT_KEYS | PATIENCE.keys()
_NOT_ASKED: Final = "HTTP error: builder error"
"""Words of the client in place of a request: it refuses ``http://`` unless ``allow_http`` is set."""
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Bucket:
    """One bucket or container. Implements :class:`streaming.delta.store.place.Store`."""

    def __init__(self, root: Url) -> None:
        """Open no connection yet; ``ConfigurationError`` if an option is missing or unknown to this kind of store."""
        self._root = root
        options = {**PATIENCE, **{_plain(key) if _plain(key) in _ALIKE else key: value for key, value in root.options}}
        client = {key: options.pop(key) for key in CLIENT_KEYS & options.keys()}
        retries, timeout = options.pop("max_retries"), options.pop("retry_timeout")
        try:
            self._store: ObjectStore = from_url(
                root.text,
                config=cast("Any", options),
                client_options=cast("Any", client),
                retry_config={"max_retries": int(retries), "retry_timeout": _duration(timeout)},
            )
        except UnknownConfigurationKeyError as error:
            raise ConfigurationError(f"tables.storage: {_first(error)}; see docs/object-stores.md") from None
        except (BaseError, ValueError) as error:
            raise ConfigurationError(f"{root} cannot be opened: {_first(error)}; see tables.storage") from None

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless the name exists; return whether this call did."""
        try:
            with self._asked():
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        """Write an object, or replace it."""
        with self._asked():
            obstore.put(self._store, name, content, use_multipart=False)

    def get(self, name: str) -> bytes:
        """Read an object; ``FileNotFoundError`` if there is none."""
        with self._asked():
            return bytes(obstore.get(self._store, name).bytes())

    def names(self, folder: str) -> list[str]:
        """List the objects below a folder, as names within it, in order."""
        with self._asked():
            begin = len(folder) + 1 if folder else 0
            return sorted(each["path"][begin:] for chunk in obstore.list(self._store, folder) for each in chunk)

    def head(self, name: str) -> ObjectStatus | None:
        """Return the status of an object; None if there is none."""
        try:
            with self._asked():
                answer = obstore.head(self._store, name)
        except FileNotFoundError:
            return None
        modified_at = answer["last_modified"].timestamp()
        return ObjectStatus(answer["size"], modified_at, (answer["e_tag"], answer["version"]))

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
        try:
            with self._asked():
                obstore.delete(self._store, name)
        except FileNotFoundError:
            return

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Turn the errors of the client into those of the system."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(_first(error)) from None
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(_first(error)) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreError(
                f"{self._root} refuses ({_first(error)}); check the credentials, and what they allow"
            ) from None
        except (BaseError, OSError, ValueError) as error:
            if _NOT_ASKED in (reason := _first(error)):
                raise StoreError(
                    f"{self._root} was not asked, because its endpoint is http:// or no URL: write https://, or "
                    '"aws_allow_http" = "true" into tables.storage'
                ) from None
            raise StoreError(f"{self._root} failed: {reason}") from error


def _duration(text: str) -> dt.timedelta:
    """Read a duration as delta-rs does: ``400ms``, ``20s``, ``1m``."""
    match = re.fullmatch(r"(\d+)(ms|s|m)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 20s")
    return dt.timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def _plain(key: str) -> str:
    """Return a key without the prefix of its store: ``aws_allow_http`` is ``allow_http``."""
    return key.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")


def _first(error: Exception) -> str:
    """Return the first line of an error; internals of the client follow it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
