"""The jars: those of an installed package of jars, else downloaded once into the cache; all verified by SHA-256.

The entry point for other packages.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError, MissingTool
from streaming.resources import conf_path
from streaming.runtime import ivy
from streaming.runtime.folders import cache_folder, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.runtime.ivy import Coordinate, Group

DELTA: Final = "delta"
SANDBOX: Final = "sandbox"
JMX_AGENT: Final = "jmx-agent"
SPARK_KAFKA: Final = "spark-kafka"
PACKAGE: Final = "isrwatch_kafka_jars"
"""Package with the jars of ``SPARK_KAFKA``, laid out as the cache: ``pip install 'isrwatch[kafka-bus]'``."""


def _silent(_: str) -> None:
    """Report no progress."""


def jars_folder() -> Path:
    """Return the folder of the jars that were downloaded."""
    return cache_folder() / "jars"


def path_of(jar: Coordinate, checksum: str) -> Path:
    """Return the path of a jar: in the package of jars, if one with this checksum is installed, else in the cache."""
    spec = find_spec(PACKAGE)
    for folder in () if spec is None else spec.submodule_search_locations or ():
        packaged = Path(folder, jar.path)
        if packaged.exists() and sha256(packaged) == checksum:
            return packaged
    return jars_folder() / jar.path


def groups() -> dict[str, Group]:
    """Read the lock file of isrwatch."""
    return ivy.read(conf_path("jars.lock"))


def usual_groups() -> tuple[str, ...]:
    """Name the groups that are fetched unless others are named."""
    return tuple(name for name, group in groups().items() if not group.only_by_name)


def jar_paths(*names: str, progress: Callable[[str], None] = _silent) -> tuple[Path, ...]:
    """Return the jars of some groups, ordered as in the lock file; download what is missing.

    Safe for concurrent processes. ``progress`` is called with each file that was downloaded.

    Raises:
        ConfigurationError: there is no such group.
        MissingTool: a jar cannot be downloaded, or has another checksum than in the lock file.
    """
    jars = _jars_of(names, groups())
    if missing(jars):
        with exclusive(jars_folder()):
            install(missing(jars), progress)  # again: another process may have installed them before the lock was free
    return tuple(path_of(jar, checksum) for jar, checksum in jars.items())


def missing(jars: Mapping[Coordinate, str]) -> dict[Coordinate, str]:
    """Return the jars that are neither installed nor cached yet."""
    return {jar: checksum for jar, checksum in jars.items() if not path_of(jar, checksum).exists()}


def intact(jar: Coordinate, checksum: str) -> bool:
    """Return whether the jar is here, with the checksum of the lock file."""
    path = path_of(jar, checksum)
    return path.exists() and sha256(path) == checksum


def install(jars: Mapping[Coordinate, str], progress: Callable[[str], None]) -> None:
    """Download and verify jars, then move them into place.

    Invariant: every file in the folder of the jars is complete and verified.
    """
    if not jars:
        return
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars_folder()) as scratch:
        reason = ivy.fetch(jars, Path(scratch), progress)
        if reason:
            raise MissingTool(
                f"cannot fetch jars: {reason} (without internet access or behind a mirror set ISRWATCH_IVY_SETTINGS "
                "to your own Ivy settings, see conf/ivysettings.xml)"
            )
        for jar, checksum in jars.items():
            _install_one(jar, checksum, Path(scratch, jar.path))


def _install_one(jar: Coordinate, checksum: str, fetched: Path) -> None:
    if (actual := sha256(fetched)) != checksum:
        raise MissingTool(
            f"{jar} has SHA-256 {actual}, but {checksum} in jars.lock: the repository serves another file"
        )
    final = jars_folder() / jar.path
    final.parent.mkdir(exist_ok=True)
    fetched.replace(final)


def relock(progress: Callable[[str], None]) -> str:
    """Resolve every group again and return the text of the lock file.

    Raises:
        MissingTool: a jar cannot be resolved.
    """
    return ivy.render({name: _relocked(group, progress) for name, group in groups().items()})


def _relocked(group: Group, progress: Callable[[str], None]) -> Group:
    required = {**dict.fromkeys(group.resolve, True), **dict.fromkeys(group.exact, False)}
    with tempfile.TemporaryDirectory(prefix="isrwatch-lock-") as scratch:
        resolved = ivy.closure(required, Path(scratch), progress)
        jars = {jar: sha256(Path(scratch, jar.path)) for jar in resolved}
    return replace(group, jars=jars)


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _jars_of(names: tuple[str, ...], locked: Mapping[str, Group]) -> dict[Coordinate, str]:
    for name in names:
        if name not in locked:
            raise ConfigurationError(f"there is no group of jars called {name!r}; groups: {', '.join(locked)}")
    return {jar: checksum for name in names for jar, checksum in locked[name].jars.items()}
