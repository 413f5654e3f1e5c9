"""The folder for temporary files of Java, without which Spark does not start. Does not depend on Spark.

Spark unpacks its own files there, and libraries of machine code. Java takes ``/tmp``, whatever ``TMPDIR`` says. A
container whose root file system is read-only has no other folder there than one that is mounted.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from streaming.errors import ConfigurationError

DEFAULT: Final = "/tmp"  # noqa: S108 - that of Java
_OPTION: Final = re.compile(r'-Djava\.io\.tmpdir=("[^"]+"|\S+)')
_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def check_scratch(*options: str) -> None:
    """Check that Java can make a folder for temporary files; ``options`` are those that Spark starts Java with.

    Raises:
        ConfigurationError: it cannot.
    """
    given = " ".join([*(os.environ.get(name, "") for name in _VARIABLES), *options])
    folder = [DEFAULT, *_OPTION.findall(given)][-1].strip('"')
    try:
        Path(tempfile.mkdtemp(prefix="isrwatch-", dir=folder)).rmdir()
    except OSError as error:
        raise ConfigurationError(
            f"Java cannot put temporary files into {folder} ({error.strerror}), and without them Spark does not start: "
            "mount a folder there that can be written, or set JDK_JAVA_OPTIONS=-Djava.io.tmpdir= to another one"
        ) from None
