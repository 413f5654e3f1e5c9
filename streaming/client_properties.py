"""Properties files of clients, as Kafka's own tools take it with ``--command-config``, as librdkafka's properties.

Names of Java's clients are translated, those of librdkafka stay. The login of ``sasl.jaas.config`` becomes that of
``sasl.username`` and ``sasl.password``, or an OpenID Connect client; a truststore and a keystore stay files, which are
read for each connection (:mod:`streaming.sources.protocol.tls`). What a client of Java cannot do without, and a client
of librdkafka has not, is refused with the way to put it right.

Sources: the documentation of ``AdminClientConfig`` and ``SslConfigs``, KIP-85 (JAAS in a property), KIP-651 (PEM).
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError
from streaming.stored_text import StoredText
from streaming.system_errors import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_JAAS: Final = "sasl.jaas.config"
_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULE: Final = "OAuthBearerLoginModule"  # noqa: S105 - the name of a class
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_OIDC: Final = ".OAuthBearerLoginCallbackHandler"
_OF_TOKENS: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_SAME: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
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
    taken = {name: value for name, value in taken.items() if not name.endswith((".class", ".classes"))}
    if taken.get("ssl.endpoint.identification.algorithm") == "":
        taken["ssl.endpoint.identification.algorithm"] = "none"
    return {**_login(path, given), **taken}


def _read(path: Path) -> dict[str, str]:
    import javaproperties  # noqa: PLC0415 - only who connects needs it

    try:
        return dict(javaproperties.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ConfigurationError(f"cannot read the client properties {path}: {reason_of(error)}") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigurationError(f"{path} is no properties file in UTF-8: {error}") from None


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
    module, _, options_text = given.get(_JAAS, "").strip().partition(" ")
    if not module:
        return {}
    options = {name: _unquoted(taken) for name, *taken in _OPTION.findall(options_text)}
    kind = module.rpartition(".")[2]
    if kind in _LOGIN_MODULES:
        names = {"username": "sasl.username", "password": "sasl.password"}
        return {theirs: options[ours] for ours, theirs in names.items() if ours in options}
    if kind == _TOKEN_MODULE:
        ids = {theirs: options[ours] for ours, theirs in _OF_TOKENS.items() if ours in options}
        return {"sasl.oauthbearer.method": "oidc", **ids}
    raise ConfigurationError(
        f"{path} logs in with {module}, which only Java can run: use a listener with PLAIN, SCRAM or OAUTHBEARER, "
        'whose tokens come from "sasl.oauthbearer.method" = "oidc", or from "isrwatch.token.command"'
    )


def _unquoted(taken: tuple[str, ...] | list[str]) -> str:
    return re.sub(r"\\(.)", r"\1", next((text for text in taken if text), ""))
