"""A name for the user that Spark runs as. Does not depend on Spark.

Hadoop asks Java for it, and Java asks the system, whatever ``user.name`` or ``HADOOP_USER_NAME`` say
(``com.sun.security.auth.module.UnixLoginModule``): a uid that the system has no name for, as containers are given by
some platforms, ends Spark at its start. nss_wrapper, a library of the Samba project that distributions have, reads
names from a file of ours instead.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import tempfile
from itertools import chain
from pathlib import Path
from typing import Final

from streaming.errors import MissingTool

LIBRARY: Final = "libnss_wrapper.so"
FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
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
    folders = chain(FOLDERS, *(sorted(folder.glob("*-linux-gnu")) for folder in FOLDERS))
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
    names.write_text(f"{_system_names()}{_NAME}:x:{uid}:{os.getegid()}:{_NAME}:{_home(folder)}:/sbin/nologin\n")
    preloaded = [str(library), *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {"LD_PRELOAD": ":".join(preloaded), "NSS_WRAPPER_PASSWD": str(names), "NSS_WRAPPER_GROUP": "/etc/group"}


def _system_names() -> str:
    try:
        text = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace")
    except OSError:  # an image without one
        return ""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _home(otherwise: Path) -> Path:
    """Return the home folder, which Java takes from the same place as the name: one that can be written."""
    home = Path(os.environ.get("HOME") or "/")
    return home if home.is_absolute() and os.access(home, os.W_OK | os.X_OK) else otherwise
