"""The configuration file that a command reads, and the variables of the environment that override its keys.

The first of these is read, and no other: the option ``--config``, the variable ``ISRWATCH_CONFIG``, ``isrwatch.toml``
in the working directory, ``/etc/isrwatch/isrwatch.toml``. Without any, every key has its default.

A variable ``ISRWATCH_TABLE__KEY`` wins over the file: ``ISRWATCH_TABLES__DIRECTORY``, and for a table in a table
``ISRWATCH_BUS__KAFKA__BOOTSTRAP_SERVERS``. One of a table or a key that does not exist is refused, because it would be
a setting that has no effect. No other variable has two underscores next to each other behind ``ISRWATCH_``.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_origin, get_type_hints

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VARIABLE: Final = "ISRWATCH_CONFIG"
IN_WORKING_DIRECTORY: Final = Path("isrwatch.toml")
OF_SYSTEM: Final = Path("/etc/isrwatch/isrwatch.toml")
OPTION_HELP: Final = f"Configuration file; default: ${VARIABLE}, ./{IN_WORKING_DIRECTORY}, {OF_SYSTEM}."
"""Help of ``--config``, which every command has that reads the configuration."""
_PREFIX: Final = "ISRWATCH_"
_BETWEEN: Final = "__"


def file_to_read(option: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file that is read, that of ``--config`` first; None without any."""
    if option is not None:
        return option
    if name := environment.get(VARIABLE):
        return Path(name)
    return next((path for path in (IN_WORKING_DIRECTORY, OF_SYSTEM) if path.exists()), None)


def read(path: Path | None) -> dict[str, Any]:
    """Read a TOML file; None is an empty one.

    Raises:
        ConfigurationError: the file is missing, or is not TOML.
    """
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors of Windows begin a file with a mark
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the configuration {path}: {error.strerror}; start from conf/isrwatch.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None


def overridden(document: Mapping[str, Any], schema: type, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return an unchecked document with the values of the environment, for the keys that a dataclass has.

    The values of a list have commas between the items, those of a table are a table of TOML.

    Raises:
        ConfigurationError: a variable names no key, or its value is none; the sentence names the variable.
    """
    result = dict(document)
    for name in overriding(environment):
        path = name.removeprefix(_PREFIX).lower().split(_BETWEEN)
        result = _with(result, path, _value(name, path, schema, environment[name]), name)
        result = _without_own(result, path)
    return result


def overriding(environment: Iterable[str]) -> list[str]:
    """Return the variables that override keys."""
    return sorted(name for name in environment if name.startswith(_PREFIX) and _BETWEEN in name)


def _without_own(document: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return a document in which no ``[cluster.collect]`` has a key of ``[collect]`` that a variable overrides."""
    clusters = document.get("cluster")
    if path[0] != "collect" or not isinstance(clusters, list):
        return document
    return {**document, "cluster": [_cluster_without(cluster, path[1]) for cluster in clusters]}


def _cluster_without(cluster: Any, key: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    own = cluster.get("collect") if isinstance(cluster, dict) else None
    if not isinstance(own, dict):
        return cluster
    return {**cluster, "collect": {name: value for name, value in own.items() if name != key}}


def without_configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for programs that read no file and no override, as those of the demo."""
    kept = {name: environment[name] for name in environment.keys() - {*overriding(environment)}}
    return {**kept, VARIABLE: os.devnull}


def _value(name: str, path: list[str], schema: type, text: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    hint: Any = schema
    for place, key in enumerate(path):
        hints = get_type_hints(hint) if is_dataclass(hint) else {}
        if key not in hints:
            table, whole = ".".join(path[:place]), f"set {'__'.join(name.split('__')[:place])} to a table of TOML"
            where = (
                f"{f'[{table}]' if table else 'the file'} has: {', '.join(hints)}"
                if hints
                else f"{table} is one value{f': {whole}' if get_origin(hint) is dict else ''}"
            )
            raise ConfigurationError(f"the variable {name} names no key {'.'.join(path[: place + 1])}; {where}")
        hint = hints[key]
    return _parsed(name, hint, text)


def _parsed(name: str, hint: Any, text: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    if is_dataclass(hint):
        keys = ", ".join(get_type_hints(hint))
        raise ConfigurationError(f"the variable {name} is a table; name one of its keys: {keys}")
    if hint == tuple[str, ...]:
        return [item.strip() for item in text.split(",") if item.strip()]
    if hint is str or hint is float:  # a duration
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        example = '{ "name" = "value" }' if hint == dict[str, str] else "5"
        raise ConfigurationError(f"the variable {name} is {text!r}; write a value of TOML, such as {example}") from None


def _with(document: dict[str, Any], path: list[str], value: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 - as above
    key, *below = path
    inside = document.get(key, {})
    if not below:
        return {**document, key: value}
    if isinstance(inside, list):
        raise ConfigurationError(
            f"the variable {name} is of one cluster, and the configuration has several: write it below its [[cluster]]"
        )
    return {**document, key: _with(inside if isinstance(inside, dict) else {}, below, value, name)}
