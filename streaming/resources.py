"""The files of the reference configuration: ``conf/`` of a checkout, ``streaming/conf/`` of an installed package."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

from streaming.errors import ConfigurationError

_unpacked = ExitStack()
atexit.register(_unpacked.close)


def conf_path(name: str) -> Path:
    """Return the path of a file or folder of the reference configuration, like ``isrwatch.toml`` or ``scenarios``.

    Raises:
        ConfigurationError: it is not installed.
    """
    package = Path(__file__).parent
    # The package first: a folder conf next to an installed package belongs to something else.
    for directory in (package / "conf", package.parent / "conf"):
        if (directory / name).exists():
            return directory / name
    zipped = files("streaming") / "conf" / name
    if zipped.is_file():  # spark-submit --py-files: the package is imported from a zip
        return _unpacked.enter_context(as_file(zipped))
    raise ConfigurationError(
        f"this installation has no conf/{name}; reinstall isrwatch, or run it from a full checkout"
    )
