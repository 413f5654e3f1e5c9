"""Needs of Spark's Java that it prints traces of itself: a folder for temporary files, and open files.

Spark unpacks its own files in that folder, and libraries of machine code. Java takes ``/tmp``, whatever ``TMPDIR``
says; a container whose root file system is read-only has no other folder there than one that is mounted. Each jar is an
open file. Does not depend on Spark.
"""

from __future__ import annotations

import os
import re
import resource
import tempfile
from pathlib import Path
from typing import Final

from streaming.errors import ConfigurationError

DEFAULT: Final = "/tmp"  # noqa: S108 - that of Java
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
    folder = [DEFAULT, *_OPTION.findall(given)][-1].strip('"')
    try:
        Path(tempfile.mkdtemp(prefix="isrwatch-", dir=folder)).rmdir()
    except OSError as error:
        raise ConfigurationError(
            f"Java cannot put temporary files into {folder} ({error.strerror}), and without them Spark does not start: "
            "mount a folder there that can be written, or name another one by -Djava.io.tmpdir= in JDK_JAVA_OPTIONS"
        ) from None
