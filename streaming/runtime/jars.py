"""The jars on this disk: fetched once, verified by SHA-256, then only looked up. The door of this room for jars."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError, MissingTool
from streaming.resources import conf_path
from streaming.runtime import ivy, lockfile
from streaming.runtime.folders import cache_folder, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.runtime.lockfile import Coordinate, Group

DELTA: Final = "delta"
KAFKA_CONNECTOR: Final = "kafka-connector"
SANDBOX: Final = "sandbox"
JMX_AGENT: Final = "jmx-agent"


def _silent(_: str) -> None:
    """Show no progress."""


def jars_folder() -> Path:
    """Give the folder of all jars."""
    return cache_folder() / "jars"


def groups() -> dict[str, Group]:
    """Read the lock that ships with isrwatch."""
    return lockfile.read(conf_path("jars.lock"))


def jar_paths(*names: str, progress: Callable[[str], None] = _silent) -> tuple[Path, ...]:
    """Give the jars of some groups, in the lock's order; fetch what is missing.

    Any number of processes may call this at once. ``progress`` is told each file as it arrives.

    Raises:
        ConfigurationError: there is no such group.
        MissingTool: a jar cannot be fetched, or is not the one that the lock names.
    """
    wanted = _wanted(names, groups())
    if missing(wanted):
        with exclusive(jars_folder()):
            install(missing(wanted), progress)
    return tuple(jars_folder() / jar.path for jar in wanted)


def missing(wanted: Mapping[Coordinate, str]) -> dict[Coordinate, str]:
    """Give those that are not on the disk yet."""
    return {jar: checksum for jar, checksum in wanted.items() if not (jars_folder() / jar.path).exists()}


def intact(jar: Coordinate, checksum: str) -> bool:
    """Tell whether the cached jar is, byte by byte, the one of the lock."""
    path = jars_folder() / jar.path
    return path.exists() and sha256(path) == checksum


def install(wanted: Mapping[Coordinate, str], progress: Callable[[str], None]) -> None:
    """Fetch, verify, then move into place: a file in the folder of jars is always whole and verified."""
    if not wanted:
        return
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars_folder()) as scratch:
        reason = ivy.fetch(wanted, Path(scratch), progress)
        if reason:
            raise MissingTool(
                f"cannot fetch jars: {reason} (without network or behind a mirror name your own Ivy settings in "
                "ISRWATCH_IVY_SETTINGS, see conf/ivysettings.xml)"
            )
        for jar, checksum in wanted.items():
            _install_one(jar, checksum, Path(scratch, jar.path))


def _install_one(jar: Coordinate, checksum: str, fetched: Path) -> None:
    if (actual := sha256(fetched)) != checksum:
        raise MissingTool(
            f"{jar} as fetched has SHA-256 {actual}, jars.lock says {checksum}: the repository serves another file"
        )
    final = jars_folder() / jar.path
    final.parent.mkdir(exist_ok=True)
    fetched.replace(final)


def relock(progress: Callable[[str], None]) -> str:
    """Resolve every group's wishes anew and give the text of the lock.

    Raises:
        MissingTool: a wish cannot be resolved.
    """
    return lockfile.render({name: _relocked(group, progress) for name, group in groups().items()})


def _relocked(group: Group, progress: Callable[[str], None]) -> Group:
    wishes = {**dict.fromkeys(group.resolve, True), **dict.fromkeys(group.exact, False)}
    with tempfile.TemporaryDirectory(prefix="isrwatch-lock-") as scratch:
        found = ivy.closure(wishes, Path(scratch), progress)
        jars = {jar: sha256(Path(scratch, jar.path)) for jar in found}
    return lockfile.Group(resolve=group.resolve, exact=group.exact, jars=jars)


def sha256(path: Path) -> str:
    """Give a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(names: tuple[str, ...], known: Mapping[str, Group]) -> dict[Coordinate, str]:
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no group of jars called {name!r}; known: {', '.join(known)}")
    return {jar: checksum for name in names for jar, checksum in known[name].jars.items()}
