"""What a web configuration file says at the moment: read again when it, or a file that it names, has changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError
from streaming.web.config_file import REQUIRE_AND_VERIFY, WebConfig, read_web_config
from streaming.web.logins import Logins
from streaming.web.tls import context_of

if TYPE_CHECKING:
    import ssl

LOG: Final = logging.getLogger(__name__)
Version = tuple[tuple[int, int, int] | None, ...]
"""Of several files: inode, size and time of change; None of one that is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """A web configuration with what is made of it."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    logins: Logins | None = None

    @property
    def allowed_names(self) -> tuple[str, ...]:
        """The names that a client's certificate must have one of; empty allows all."""
        return self.config.tls.client_allowed_sans if self.config.tls else ()

    def protects(self) -> tuple[bool, bool, bool]:
        """Return whether there are TLS, certificates of clients, and logins."""
        tls = self.config.tls
        return tls is not None, tls is not None and tls.client_auth_type == REQUIRE_AND_VERIFY, self.logins is not None


class Protection:
    """The rules of now.

    A file that is wrong after a change is reported, and the rules of before apply: half a file is what a reader sees
    while another program writes it. For the same reason TLS, certificates of clients and logins can be added and
    changed, but are switched off by a restart only.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read a file; None protects nothing.

        Raises:
            ConfigurationError: it is wrong.
        """
        self._path = path
        self._files: tuple[str, ...] = ()
        self._version: Version = ()
        self._rules = Rules() if path is None else self._read(path)

    @property
    def rules(self) -> Rules:
        """The rules of now."""
        if self._path is not None and (version := self._version_now(self._path)) != self._version:
            self._version = version
            self._read_again(self._path)
        return self._rules

    def _read_again(self, path: Path) -> None:
        try:
            rules = self._read(path)
        except ConfigurationError as error:
            LOG.warning("%s; what was read before applies", error)
            return
        if any(before and not now for before, now in zip(self._rules.protects(), rules.protects(), strict=True)):
            LOG.warning(
                "%s has no TLS, certificates of clients or logins any more; what was read before applies, restart to "
                "switch them off",
                path,
            )
            return
        self._rules = rules

    def _read(self, path: Path) -> Rules:
        """Read a file. What it names is watched from then on, also while it is not there yet."""
        version = _version_of(path)
        config = read_web_config(path)
        self._files = config.tls.files if config.tls else ()
        self._version = (version, *map(_version_of, map(Path, self._files)))
        try:
            context = context_of(config.tls) if config.tls else None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        return Rules(config, context, Logins(config.users) if config.users else None)

    def _version_now(self, path: Path) -> Version:
        return tuple(_version_of(each) for each in (path, *map(Path, self._files)))


def protection_of(file: str) -> Protection:
    """Read the web configuration file of a program; an empty name is none.

    Raises:
        ConfigurationError: it is wrong.
    """
    return Protection(Path(file) if file else None)


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns  # of the content, or of who may read it
