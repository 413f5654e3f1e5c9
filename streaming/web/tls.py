"""TLS of our HTTP servers, from the web configuration file."""

from __future__ import annotations

import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from streaming.errors import ConfigurationError
from streaming.web.config_file import CIPHER_SUITES, NO_CLIENT_CERT, REQUIRE_AND_VERIFY, VERIFY_IF_GIVEN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.web.config_file import TlsServerConfig

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    NO_CLIENT_CERT: ssl.CERT_NONE,
    VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}


def context_of(tls: TlsServerConfig) -> ssl.SSLContext:
    """Load certificates, and return what TLS connections are made with.

    Raises:
        ConfigurationError: a file cannot be read, or key and certificate are of different pairs.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if tls.cipher_suites:
        context.set_ciphers(":".join(CIPHER_SUITES[suite] for suite in tls.cipher_suites))
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        # Of an encrypted key OpenSSL would ask a terminal for the password.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except OSError as error:
        raise _refusal("cert_file and key_file", f"{tls.cert_file} and {tls.key_file}", error) from None
    if tls.client_ca_file:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except OSError as error:
            raise _refusal("client_ca_file", tls.client_ca_file, error) from None
    context.verify_mode = _VERIFY[tls.client_auth_type]
    return context


def has_allowed_name(certificate: Mapping[str, Any] | None, allowed: Collection[str]) -> bool:
    """Return whether a certificate, as ``getpeercert`` returns it, has one of the Subject Alternative Names.

    No certificate is allowed here: whether one is required was decided in the handshake.
    """
    if not allowed or not certificate:
        return True
    return any(_name(kind, name) in allowed for kind, name in certificate.get("subjectAltName", ()))


def _name(kind: str, name: str) -> str:
    if kind == "IP Address":
        with suppress(ValueError):
            return str(ip_address(name))  # OpenSSL writes IPv6 in full, Go and people in short
    return name


def _refusal(key: str, files: str, error: OSError) -> ConfigurationError:
    reason = "not a PEM certificate with its key, unencrypted" if isinstance(error, ssl.SSLError) else error.strerror
    return ConfigurationError(f"tls_server_config.{key}: cannot load {files}: {reason}")
