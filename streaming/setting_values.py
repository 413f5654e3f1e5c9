"""What single values of the configuration, and of options in their place, must be; each sentence names the key."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def check_folders(folders: Mapping[str, str]) -> None:
    """Refuse folders of checkpoints that have no name, or are none of this machine."""
    for name, folder in folders.items():
        if not name or not folder or re.match(r"\w+:/", folder):
            raise ConfigurationError(
                f"collect.spark_checkpoints: {name!r} = {folder!r} must be a name and the path of a folder that this "
                "machine can read, no URL; mount it where it is in an object store"
            )
