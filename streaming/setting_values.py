"""What single values of the configuration, and of options in their place, must be; each sentence names the key."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WITH_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/")


def check_pattern(key: str, pattern: str) -> None:
    """Refuse a regular expression that is none, or that is obviously meant as a pattern of file names.

    Raises:
        ConfigurationError: it is; the sentence names the key.
    """
    as_expression = re.sub(r"(?<!\.)\*", ".*", pattern)
    if as_expression != pattern and re.fullmatch(r"[\w.*?|^$-]+", pattern):
        raise ConfigurationError(
            f"{key} is {pattern!r}, but it is a regular expression, in which * repeats the character before it: write "
            f"{as_expression!r}, or put that character in brackets"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{key} {pattern!r} is no regular expression: {error}") from None


def check_telemetry_path(key: str, path: str) -> None:
    """Refuse a path that is none, or that of something else.

    Raises:
        ConfigurationError: it does; the sentence names the key.
    """
    if not re.fullmatch(r"/[\w.~/-]+", path, re.ASCII) or path.startswith(
        ("/-/", "/api/", "/healthz", "/clusters/", "/metrics/")
    ):
        raise ConfigurationError(f"{key} is {path!r}; write a path that nothing else has, for example /metrics")


def check_seconds(key: str, value: float) -> None:
    """Refuse a time that is no time to wait."""
    may_be_zero = key == "job.trigger_seconds"  # Spark starts the next micro-batch at once
    if not (0 < value < math.inf or (value == 0 and may_be_zero)):
        bound = "0 or more" if may_be_zero else "above 0"
        raise ConfigurationError(f"{key} is {value}; it must be {bound}, and finite")


def check_place(key: str, place: str) -> None:
    """Refuse a place that is named by a scheme (``s3://bucket/tables``): it would become a local folder ``s3:``.

    Args:
        key: the setting or the option that names it.
        place: of a folder or a file. A ``Path`` has one slash less than what was written.

    Raises:
        ConfigurationError: it has a scheme; the sentence names the key and what to write instead.
    """
    if written := _WITH_SCHEME.match(place):
        scheme = written["scheme"]
        is_local = scheme.lower() == "file"
        fix = (
            "write the path alone" if is_local else "mount the place on this machine, and write the path of its folder"
        )
        raise ConfigurationError(f"{key} begins with {scheme}:/, but it must be a path of this machine: {fix}")


def check_folders(folders: Mapping[str, str]) -> None:
    """Refuse folders of checkpoints that have no name, or no path."""
    for name, folder in folders.items():
        if not name or not folder:
            raise ConfigurationError(
                f"collect.spark_checkpoints: {name!r} = {folder!r} must be a name and the path of a folder"
            )
