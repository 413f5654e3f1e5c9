"""Tokens for SASL OAUTHBEARER (RFC 7628): of an OpenID Connect provider, or of a command that prints one.

A token is used until a fifth of its lifetime is left, by all connections of one client. A caller may wait for a new
one, never longer than ``SECONDS``.
"""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request, urlopen

from kafka.net.sasl.oauth import AbstractTokenProvider

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.secret_values import as_of_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMMAND: Final = "isrwatch.token.command"
"""The one property of a client that is ours: librdkafka does not know it."""
SECONDS: Final = 5.0
_OIDC: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.token.endpoint.url")
_LIFE_SECONDS: Final = 300.0
"""Life of a token that does not say how long it holds."""
_USED_FOR: Final = 0.8
_LARGEST_BYTES: Final = 1 << 20
_LONGEST_ANSWER: Final = 200


class Token(NamedTuple):
    """A token, and until when it holds, in seconds since 1970."""

    value: str
    expires_at: float


@dataclass(slots=True)
class Tokens:
    """The tokens of one client. Thread-safe.

    ``fetch`` gets a new one, or raises ``ConnectionRefused``; ``extensions`` go with each (KIP-342).
    """

    fetch: Callable[[], Token]
    extensions: Mapping[str, str] = field(default_factory=dict)
    _last: Token | None = None
    renewed_at: float = 0.0
    _fetched: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def current(self) -> Token:
        """Return a token that holds for a while; the last one, while it holds and there is no other.

        Raises:
            ConnectionRefused: there is none.
        """
        with self._lock:
            now = time.time()
            if self._last is not None and now < self.renewed_at:
                return self._last
            try:
                self._last = self.fetch()
            except ConnectionRefused:
                if self._last is None or now + SECONDS >= self._last.expires_at:
                    raise
                self.renewed_at = now + SECONDS
            else:
                self.renewed_at = now + _USED_FOR * (self._last.expires_at - now)
                self._fetched = time.monotonic()
            return self._last

    def refused(self) -> None:
        """Note that a node refuses the last one, however long it holds: a key was replaced, or the clock here is wrong.

        One that is new is not given up: other nodes refuse its predecessor at the same time.
        """
        with self._lock:
            if time.monotonic() - self._fetched > SECONDS:
                self._last = None


class Provider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python ships no types
    """The tokens as kafka-python asks for them."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        """Return a token that holds for a while."""
        return self._tokens.current().value

    def extensions(self) -> dict[str, str]:
        """Return what goes with it."""
        return dict(self._tokens.extensions)


def are_known(client: Mapping[str, str]) -> bool:
    """Return whether a client's properties say where tokens come from, or which command prints one."""
    return COMMAND in client or client.get("sasl.oauthbearer.method", "").lower() == "oidc"


def tokens_of(client: Mapping[str, str], table: str) -> Tokens:
    """Return the tokens of a client's properties.

    Raises:
        ConfigurationError: one is missing, or cannot be used.
    """
    if COMMAND in client:
        return Tokens(lambda: token_of_command(client[COMMAND]), _extensions(client, table))
    if missing := [key for key in _OIDC if key not in client]:
        raise ConfigurationError(f"{table} {missing[0]} is missing; sasl.oauthbearer.method oidc requires it")
    if not client[_OIDC[-1]].startswith(("http://", "https://")):
        raise ConfigurationError(f"{table} {_OIDC[-1]} is {client[_OIDC[-1]]!r}; write https://host/path")
    return Tokens(lambda: _token_of_provider(client), _extensions(client, table))


def token_of_command(command: str) -> Token:
    """Run a command; it prints the token alone, or JSON with ``access_token`` and, if it likes, ``expires_in``.

    Raises:
        ConnectionRefused: it fails, takes too long, or prints something else. What it prints is not repeated.
    """
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=SECONDS, check=False, text=True)  # noqa: S603 - the operator's own command
    except (OSError, ValueError, IndexError) as error:
        raise ConnectionRefused(f"the token command {command!r} cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise ConnectionRefused(f"the token command {command!r} takes longer than {SECONDS:g} s") from None
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2][:_LONGEST_ANSWER]
        raise ConnectionRefused(f"the token command {command!r} ended with {done.returncode}: {said}")
    printed = done.stdout.strip()
    token = _from_json(printed) if printed.startswith("{") else _with_life(printed, None)
    if token is None or any(char.isspace() or not char.isprintable() for char in token.value):
        raise ConnectionRefused(f"the token command {command!r} prints no token, and no JSON object with access_token")
    return token


def _token_of_provider(client: Mapping[str, str]) -> Token:
    """Ask for a token with the client's own credentials (RFC 6749, 4.4)."""
    client_id, secret, url = (as_of_now(client[key]) for key in _OIDC)
    scope = client.get("sasl.oauthbearer.scope")
    fields = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
    login = b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
    request = Request(url, urlencode(fields).encode(), headers)  # noqa: S310 - http or https, as tokens_of checks
    ca_location = client.get("https.ca.location")
    try:
        trusted = ssl.create_default_context(cafile=ca_location) if url.startswith("https") else None
        with urlopen(request, timeout=SECONDS, context=trusted) as response:  # noqa: S310 - as above
            token = _from_json(response.read(_LARGEST_BYTES).decode())
    except HTTPError as refusal:
        raise ConnectionRefused(
            f"the token endpoint {url} refuses client {client_id!r}: HTTP {refusal.code}; check sasl.oauthbearer.*"
        ) from None
    except (OSError, ValueError, HTTPException) as error:
        raise ConnectionRefused(f"the token endpoint {url} does not answer: {error}") from None
    if token is None:
        raise ConnectionRefused(f"the token endpoint {url} answers without an access_token")
    return token


def _from_json(text: str) -> Token | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    token = document.get("access_token") if isinstance(document, dict) else None
    return _with_life(token, document.get("expires_in")) if isinstance(token, str) else None


def _with_life(token: str, seconds: Any) -> Token | None:  # noqa: ANN401 - a value of a JSON object
    """Return a token with its end: as the provider says, else as the token itself does (RFC 7519), else soon."""
    now = time.time()
    if isinstance(seconds, (int, float)) and seconds > 0:
        return Token(token, now + seconds)
    return Token(token, _end_in(token) or now + _LIFE_SECONDS) if token else None


def _end_in(token: str) -> float | None:
    try:
        claims = token.split(".")[1]
        end = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (IndexError, ValueError, KeyError, TypeError):
        return None
    return float(end) if isinstance(end, (int, float)) else None


def _extensions(client: Mapping[str, str], table: str) -> dict[str, str]:
    """Parse ``key=value,key=value``."""
    pairs = [pair for pair in client.get("sasl.oauthbearer.extensions", "").split(",") if pair.strip()]
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ConfigurationError(f"{table} sasl.oauthbearer.extensions has {wrong[0]!r}; write key=value,key=value")
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs)}
