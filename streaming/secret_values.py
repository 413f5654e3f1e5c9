"""Values of the configuration that stand elsewhere: in the environment, or in a file that only its owner may read.

``${NAME}`` anywhere in a value is replaced by an environment variable, and ``$${NAME}`` is the text ``${NAME}``; a
value that is ``file:PATH`` is replaced by the content of the file, without the end of its last line; a login that
changes there holds from its next use on (:mod:`streaming.stored_text`). ``client_file`` of a cluster is a properties
file of Kafka's own tools (:mod:`streaming.client_properties`). Only what is about to connect to Kafka asks for them:
the exporter needs no secret, and the job none but that of the bus.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.client_properties import client_properties
from streaming.errors import ConfigurationError
from streaming.stored_text import StoredText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.settings import KafkaBusSettings, ServerSettings, Settings


_VARIABLE: Final = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE: Final = "file:"
_SECRETS: Final = re.compile(r"password|secret|account_key|sas_|jaas|token|user\.info|\.pem$|oauthbearer\.config$")
_LOGIN: Final = re.compile(r"https?://[^/@]+:[^/@]+@")


def with_secrets(settings: Settings, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return a configuration with the values of ``[cluster]``, of its exporters and of the bus as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    cluster, controllers, collect = settings.cluster, settings.cluster.controllers, settings.collect
    filled = {
        key: {name: _filled(value, f"{key} {name}", environment) for name, value in table.items()}
        for key, table in _tables(settings).items()
    }
    controllers = replace(controllers, client=filled["cluster.controllers.client"])
    client = filled["cluster.client"]
    if cluster.client_file:
        client = {**client_properties(Path(cluster.client_file)), **client}
    servers = _filled(cluster.bootstrap_servers, "cluster.bootstrap_servers", environment)
    cluster = replace(cluster, bootstrap_servers=servers, client=client, controllers=controllers)
    exporters, login = filled["collect.broker_metrics"], filled["collect.broker_metrics_client"]
    collect = replace(collect, broker_metrics=exporters, broker_metrics_client=login)
    bus = replace(settings.bus, kafka=with_bus_secrets(settings.bus.kafka, environment))
    return replace(settings, cluster=cluster, collect=collect, bus=bus)


def with_bus_secrets(bus: KafkaBusSettings, environment: Mapping[str, str] = os.environ) -> KafkaBusSettings:
    """Return the settings of the bus with the values of ``[bus.kafka.client]`` as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    servers = _filled(bus.bootstrap_servers, "bus.kafka.bootstrap_servers", environment)
    client = {name: _filled(value, f"bus.kafka.client {name}", environment) for name, value in bus.client.items()}
    return replace(bus, bootstrap_servers=servers, client=client)


def storage_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the options of the store of the tables as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    options = settings.tables.storage.items()
    return {name: _filled(value, f"tables.storage {name}", environment) for name, value in options}


def server_password(server: ServerSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the password for the exporter that commands ask; errors are those of :func:`with_secrets`."""
    return _filled(server.password, "server.password", environment)


def written_secrets(settings: Settings) -> list[str]:
    """Return the keys whose secret stands in the configuration file itself."""
    return [
        f"{key} {name}"
        for key, table in _tables(settings).items()
        for name, value in table.items()
        if (_SECRETS.search(name) or _LOGIN.match(value)) and not _stands_elsewhere(value)
    ]


def _tables(settings: Settings) -> dict[str, dict[str, str]]:
    return {
        "cluster.client": settings.cluster.client,
        "cluster.controllers.client": settings.cluster.controllers.client,
        "collect.broker_metrics": settings.collect.broker_metrics,
        "collect.broker_metrics_client": settings.collect.broker_metrics_client,
        "tables.storage": settings.tables.storage,
        "server": {"password": settings.server.password} if settings.server.password else {},
        "bus.kafka.client": settings.bus.kafka.client,
    }


def _stands_elsewhere(value: str) -> bool:
    return value.startswith(_FILE) or any(not escape for escape, _ in _VARIABLE.findall(value))


def _filled(value: str, key: str, environment: Mapping[str, str]) -> str:
    if value.startswith(_FILE):
        return StoredText(partial(_content, value.removeprefix(_FILE), key))

    def variable(match: re.Match[str]) -> str:
        escape, name = match.groups()
        if escape:
            return match[0][1:]
        if name not in environment:
            raise ConfigurationError(
                f"{key} refers to ${{{name}}}, which the environment does not have; set it, or write $${{{name}}} for "
                "that text itself"
            )
        return environment[name]

    return _VARIABLE.sub(variable, value)


def _content(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigurationError(f"{key} refers to the file {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{key} refers to the file {path}, which is not text in UTF-8") from None
