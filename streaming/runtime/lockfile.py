"""``conf/jars.lock``: which jars, by coordinate and SHA-256. Knows TOML, no network and no cache.

A group's ``resolve`` and ``exact`` are wishes, with and without what they depend on; its ``jars`` are what the wishes
came to when the lock was last written. Only ``jars`` are ever fetched.
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
# The jars beside pyspark's own, by coordinate and SHA-256. Where they come from is the resolver's business:
# conf/ivysettings.xml, or the file that ISRWATCH_IVY_SETTINGS names (a mirror, a folder without network).
# "resolve" is taken with what it depends on, "exact" without: delta and kafka-connector are the sets that were run with
# Spark, which carries the rest. After a change of these two write the sums anew: isrwatch jars lock
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
        """Where the jar lies below a folder of jars."""
        return f"{self.group}/{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One set of jars that is used together."""

    resolve: tuple[Coordinate, ...] = ()
    exact: tuple[Coordinate, ...] = ()
    jars: Mapping[Coordinate, str]


def coordinate(text: str) -> Coordinate:
    """Read ``group:artifact:version``.

    Raises:
        ConfigurationError: it is not of that form.
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
        raise ConfigurationError(f"{path} is not a lock of jars: {error}") from None


def render(groups: Mapping[str, Group]) -> str:
    """Write a lock file's text; the same groups always give the same bytes."""
    return "\n".join([_HEADER, *(_section(name, group) for name, group in groups.items())])


def _group(
    *,
    jars: dict[str, str],
    resolve: list[str] | None = None,
    exact: list[str] | None = None,
) -> Group:
    for text, checksum in jars.items():
        if not _SUM.fullmatch(checksum):
            raise ConfigurationError(f"{text} in jars.lock has no SHA-256; write it anew: isrwatch jars lock")
    return Group(
        resolve=tuple(map(coordinate, resolve or ())),
        exact=tuple(map(coordinate, exact or ())),
        jars={coordinate(text): checksum for text, checksum in jars.items()},
    )


def _section(name: str, group: Group) -> str:
    lines = [f"[{name}]"]
    for key, wishes in (("resolve", group.resolve), ("exact", group.exact)):
        if wishes:
            lines += [f"{key} = [", *(f'    "{wish}",' for wish in wishes), "]"]
    lines += ["", f"[{name}.jars]"]
    lines += [f'"{jar}" = "{group.jars[jar]}"' for jar in sorted(group.jars)]
    return "\n".join([*lines, ""])
