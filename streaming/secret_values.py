"""Values of the configuration that stand elsewhere: in the environment, or in a file that only its owner may read.

``${NAME}`` anywhere in a value is replaced by an environment variable, and ``$${NAME}`` is the text ``${NAME}``; a
value that is ``file:PATH`` is replaced by the content of the file, without the end of its last line; a login that
changes there holds from its next use on (``StoredText``). ``client_file`` of a cluster is a properties file of Kafka's
own tools (``client_properties``). Only what is about to connect to Kafka asks for them: the exporter needs no secret,
and the job none but that of the bus.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Self

from streaming.errors import ConfigurationError, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.settings import KafkaBusSettings, ServerSettings, Settings


class StoredText(str):
    """Text as it was read, with the way to read it again."""

    __slots__ = ("read",)
    read: Callable[[], str]

    def __new__(cls, read: Callable[[], str]) -> Self:
        """Read it for the first time; ``read`` raises ConfigurationError where it cannot."""
        text = super().__new__(cls, read())
        text.read = read
        return text

    def __reduce__(self) -> tuple[type[StoredText], tuple[Callable[[], str]]]:
        """Read it again in another process."""
        return StoredText, (self.read,)


def as_of_now(text: str) -> str:
    """Return a text as its file has it now; what cannot be read now is as it was.

    A file that another program is writing, or a mounted secret that is being exchanged, is missing for a moment.
    """
    if not isinstance(text, StoredText):
        return text
    try:
        return text.read()
    except ConfigurationError:
        return text


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


def storage_of(settings: Settings) -> dict[str, str]:
    """Return the options of the store of the tables as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    options = settings.tables.storage.items()
    return {name: _filled(value, f"tables.storage {name}", os.environ) for name, value in options}


def server_password(server: ServerSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the password for the exporter that commands ask; errors are those of :func:`with_secrets`."""
    return _filled(server.password, "server.password", environment)


def written_secrets(settings: Settings) -> list[str]:
    """Return the keys whose secret stands in the configuration file itself."""
    return [
        f"{key} {name}"
        for key, table in _tables(settings).items()
        for name, value in table.items()
        if (_SECRETS.search(name) or _LOGIN.match(value)) and not stands_elsewhere(value)
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


def stands_elsewhere(value: str) -> bool:
    """Return whether a value is only named in the configuration, wholly or in part: a variable, or a file."""
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


# Properties files of clients, as Kafka's own tools take it with --command-config, as librdkafka's properties: names of
# Java's clients are translated, those of librdkafka stay. The login of sasl.jaas.config becomes that of sasl.username
# and sasl.password, or an OpenID Connect client; a truststore and a keystore stay files, which are read for each
# connection (streaming.sources.protocol.tls). What a client of Java cannot do without, and a client of librdkafka has
# not, is refused with the way to put it right.
# Sources: the documentation of AdminClientConfig and SslConfigs, KIP-85 (JAAS in a property), KIP-651 (PEM).


_JAAS: Final = "sasl.jaas.config"
_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULE: Final = "OAuthBearerLoginModule"  # noqa: S105 - the name of a class
_CLASS: Final = re.compile(r"[\w.$]+")
_PEM: Final = re.compile(r"(-----BEGIN [A-Z ]+-----)([\sA-Za-z0-9+/=]+)(-----END [A-Z ]+-----)\s*")
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_OIDC: Final = ".OAuthBearerLoginCallbackHandler"
_OF_TOKENS: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION: Final = "extension_"
_SAME: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_LOGINS: Final = frozenset({
    "sasl.username", "sasl.password", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password",
})  # fmt: skip
"""Properties that change when an operator gives a user another password, or makes a store again."""
_ELSEWHERE: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""The addresses come from the configuration, as those of Kafka's tools come from an option."""
_MEANINGLESS: Final = frozenset({
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "auto.include.jmx.reporter",
    "ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.truststore.type", "ssl.keystore.type", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.cipher.suites", "security.providers",
    "default.api.timeout.ms", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "send.buffer.bytes", "receive.buffer.bytes", "socket.connection.setup.timeout.max.ms",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
})  # fmt: skip
"""Properties of Java's clients alone that decide neither whom a client trusts nor as whom it logs in."""


def client_properties(path: Path) -> dict[str, str]:
    """Read a properties file; return properties of librdkafka. A login is read again when it is used.

    Raises:
        ConfigurationError: the file cannot be read, or has a login that only Java's clients have; the sentence names
            the property and the fix, and holds no value of a secret.
    """
    properties = _properties(path)
    logins = {name: StoredText(partial(_login_now, path, name)) for name in _LOGINS & properties.keys()}
    return {**properties, **logins}


def _login_now(path: Path, name: str) -> str:
    properties = _properties(path)
    if name not in properties:
        raise ConfigurationError(f"{path} does not have {name}")
    return properties[name]


def _properties(path: Path) -> dict[str, str]:
    given = _read(path)
    taken = {
        _SAME.get(name, name): value
        for name, value in given.items()
        if name not in _ELSEWHERE | _MEANINGLESS and name != _JAAS
    }
    _refuse_classes(path, taken)
    taken = {
        name: _in_lines(value) if name.endswith(".pem") else value
        for name, value in taken.items()
        if not name.endswith((".class", ".classes"))
    }
    if taken.get("ssl.endpoint.identification.algorithm") == "":
        taken["ssl.endpoint.identification.algorithm"] = "none"
    return {**_login(path, given), **taken}


def _read(path: Path) -> dict[str, str]:
    import javaproperties  # noqa: PLC0415 - only who connects needs it

    try:
        given = javaproperties.loads(path.read_text(encoding="utf-8-sig"))
        return {name: value.strip() for name, value in given.items()}  # as Kafka's clients do with every value
    except OSError as error:
        raise ConfigurationError(f"cannot read the client properties {path}: {reason_of(error)}") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigurationError(f"{path} is no properties file in UTF-8: {error}") from None


def _in_lines(pem: str) -> str:
    """Return PEM with the line ends that it needs: in these files spaces are as good (KIP-651)."""
    return _PEM.sub(lambda each: "\n".join([each[1], *wrap("".join(each[2].split()), 64), each[3], ""]), pem)


def _refuse_classes(path: Path, taken: Mapping[str, str]) -> None:
    """Refuse classes of Java, without which the login would be another one."""
    classes = sorted(
        name
        for name, value in taken.items()
        if name.endswith((".class", ".classes")) and value and not value.endswith(_OIDC)
    )
    if classes:
        raise ConfigurationError(
            f"{path} has {classes[0]}, a class that only Java can run: remove it, and name the login as librdkafka "
            'does; a token comes from "sasl.oauthbearer.method" = "oidc", or from "isrwatch.token.command"'
        )


def _login(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the login that ``sasl.jaas.config`` names."""
    module, *rest = given.get(_JAAS, "").split(maxsplit=1) or [""]
    if not module:
        return {}
    options = {name: _unquoted(taken) for name, *taken in _OPTION.findall("".join(rest))}
    kind = module.rpartition(".")[2]
    if kind in _LOGIN_MODULES and options.get("tokenauth", "").lower() == "true":
        raise ConfigurationError(
            f"{path} logs in with a delegation token, which isrwatch cannot do: name a user with a password"
        )
    if kind in _LOGIN_MODULES:
        names = {"username": "sasl.username", "password": "sasl.password"}
        return {theirs: options[ours] for ours, theirs in names.items() if ours in options}
    if kind == _TOKEN_MODULE:
        ids = {theirs: options[ours] for ours, theirs in _OF_TOKENS.items() if ours in options}
        return {"sasl.oauthbearer.method": "oidc", **ids, **_extensions(options)}
    if not _CLASS.fullmatch(module):
        raise ConfigurationError(
            f"{path} has a {_JAAS} that names no login module: begin it with that of its mechanism"
        )
    raise ConfigurationError(
        f"{path} logs in with {module}, which only Java can run: use a listener with PLAIN, SCRAM or OAUTHBEARER, "
        'whose tokens come from "sasl.oauthbearer.method" = "oidc", or from "isrwatch.token.command"'
    )


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Return what goes with each token, such as the cluster and the pool of Confluent Cloud."""
    given = (
        f"{name.removeprefix(_EXTENSION)}={value}" for name, value in options.items() if name.startswith(_EXTENSION)
    )
    return {"sasl.oauthbearer.extensions": text} if (text := ",".join(given)) else {}


def _unquoted(taken: tuple[str, ...] | list[str]) -> str:
    return re.sub(r"\\(.)", r"\1", next((text for text in taken if text), ""))
