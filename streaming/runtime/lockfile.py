"""``conf/jars.lock``: jars by coordinate and SHA-256. Depends on TOML only, not on the network or the cache.

A group requires the jars of ``resolve`` with their dependencies and those of ``exact`` without; its ``jars`` are the
result of the last resolution. Only ``jars`` are ever downloaded.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HEADER: Final = """\
# The jars that pyspark does not contain, by coordinate and SHA-256. The repository is configured in
# conf/ivysettings.xml, or in the file that ISRWATCH_IVY_SETTINGS points at (a mirror, a local folder).
# "resolve" includes the dependencies of a jar, "exact" does not: Spark already has the other dependencies of delta.
# After a change of "resolve" or "exact" write the sums again: isrwatch jars lock
"""
_COORDINATE: Final = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")
_SUM: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """One jar: ``group:artifact:version``."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def path(self) -> str:
        """The path of the jar below the folder of the jars."""
        return f"{self.group}/{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jars that are used together."""

    resolve: tuple[Coordinate, ...] = ()
    exact: tuple[Coordinate, ...] = ()
    jars: Mapping[Coordinate, str]


def coordinate(text: str) -> Coordinate:
    """Parse ``group:artifact:version``.

    Raises:
        ConfigurationError: it does not have that form.
    """
    parts = _COORDINATE.fullmatch(text)
    if parts is None or ".." in text:
        raise ConfigurationError(f"{text!r} in jars.lock is not of the form group:artifact:version")
    return Coordinate(*parts.groups())


def read(path: Path) -> dict[str, Group]:
    """Read a lock file.

    Raises:
        ConfigurationError: it is missing, is not TOML, or a line is not a coordinate with a SHA-256.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: _group(**table) for name, table in document.items()}
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ConfigurationError(f"{path} is not a lock file of jars: {error}") from None


def render(groups: Mapping[str, Group]) -> str:
    """Return the text of a lock file; deterministic."""
    return "\n".join([_HEADER, *(_section(name, group) for name, group in groups.items())])


def _group(
    *,
    jars: dict[str, str],
    resolve: list[str] | None = None,
    exact: list[str] | None = None,
) -> Group:
    for text, checksum in jars.items():
        if not _SUM.fullmatch(checksum):
            raise ConfigurationError(f"{text} in jars.lock has no SHA-256; write it again: isrwatch jars lock")
    return Group(
        resolve=tuple(map(coordinate, resolve or ())),
        exact=tuple(map(coordinate, exact or ())),
        jars={coordinate(text): checksum for text, checksum in jars.items()},
    )


def _section(name: str, group: Group) -> str:
    lines = [f"[{name}]"]
    for key, required in (("resolve", group.resolve), ("exact", group.exact)):
        if required:
            lines += [f"{key} = [", *(f'    "{jar}",' for jar in required), "]"]
    lines += ["", f"[{name}.jars]"]
    lines += [f'"{jar}" = "{group.jars[jar]}"' for jar in sorted(group.jars)]
    return "\n".join([*lines, ""])
