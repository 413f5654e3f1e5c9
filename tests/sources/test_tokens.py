"""Tokens for OAUTHBEARER: of an OpenID Connect provider, of a command; and what is said where there is none."""

from __future__ import annotations

import base64
import json
import shlex
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.protocol.security import from_client
from streaming.sources.protocol.tokens import COMMAND, Token, Tokens, token_of_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def jwt(**claims: Any) -> str:
    """A token that nobody signed, as Kafka takes it where no validator is configured."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join([*parts, b""]).decode()


def printing(text: str, code: int = 0, seconds: float = 0) -> str:
    """A command that prints a text."""
    program = f"import sys, time; time.sleep({seconds}); print({text!r}); sys.exit({code})"
    return shlex.join([sys.executable, "-c", program])


class Provider(ThreadingHTTPServer):
    """Gives tokens to client ``ann`` with secret ``p:w``."""

    asked: list[dict[str, list[str]]]
    answer: Callable[[], tuple[int, bytes]]


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        code, body = self.server.answer() if login == "ann:p%3Aw" else (401, b"")
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider(("127.0.0.1", 0), Handler)
    server.asked = []
    server.answer = lambda: (200, json.dumps({"access_token": "abc", "expires_in": 1000}).encode())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def oidc(provider: Provider, **more: str) -> dict[str, str]:
    return {
        **OAUTH,
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.client.id": "ann",
        "sasl.oauthbearer.client.secret": "p:w",
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{provider.server_port}/token",
        **{f"sasl.oauthbearer.{key}": value for key, value in more.items()},
    }


def first_bytes(client: dict[str, str]) -> bytes:
    return bytes(from_client(client).exchange().auth_bytes())


def test_a_provider_is_asked_once_with_the_clients_own_credentials_and_the_scope(provider: Provider) -> None:
    security = from_client(oidc(provider, scope="kafka read", extensions="logicalCluster=lkc-1, pool = p"))

    sent = {bytes(security.exchange().auth_bytes()) for _ in range(3)}

    assert sent == {b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01pool=p\x01\x01"}
    assert provider.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((403, b""), r"refuses client 'ann': HTTP 403; check sasl.oauthbearer"),
        ((200, b"{}"), r"answers without an access_token"),
        ((200, b'{"access_token": 7}'), r"answers without an access_token"),
        ((200, b"<html>"), r"answers without an access_token"),
        ((200, b"\xff"), r"does not answer"),
    ],
)
def test_a_provider_that_gives_none_is_one_sentence_without_the_secret(
    provider: Provider, answer: tuple[int, bytes], sentence: str
) -> None:
    provider.answer = lambda: answer
    with pytest.raises(ConnectionRefused, match=f"the token endpoint http://.*/token {sentence}") as refusal:
        first_bytes(oidc(provider))
    assert "p:w" not in str(refusal.value)


def test_a_wrong_secret_and_a_provider_that_is_down_are_said(provider: Provider) -> None:
    with pytest.raises(ConnectionRefused, match="HTTP 401"):
        first_bytes({**oidc(provider), "sasl.oauthbearer.client.secret": "x"})
    with pytest.raises(ConnectionRefused, match="does not answer"):
        first_bytes({**oidc(provider), "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"})


@pytest.mark.parametrize(
    ("printed", "life"),
    [
        (lambda: "abc", 300),
        (lambda: jwt(exp=time.time() + 5_000), 5_000),
        (lambda: jwt(exp="soon"), 300),
        (lambda: "a.b!.c", 300),
        (lambda: json.dumps({"access_token": "abc", "expires_in": 60}), 60),
        (lambda: json.dumps({"access_token": jwt(exp=time.time() + 900)}), 900),
    ],
    ids=["no token of JSON", "its own end", "an odd end", "no claims", "the provider's end", "both"],
)
def test_a_command_prints_a_token_which_says_how_long_it_holds(printed: Callable[[], str], life: float) -> None:
    text = printed()
    token = token_of_command(printing(text))

    assert token.value in text
    assert token.expires_at - time.time() == pytest.approx(life, abs=20)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("/nowhere/at/all", "cannot be run: .*No such file"),
        ("'unclosed", "cannot be run: No closing quotation"),
        ("", "cannot be run"),
        (printing("secret", code=3), "ended with 3: $"),
        (printing(""), "prints no token"),
        (printing("two words"), "prints no token"),
        (printing('{"token": "secret"}'), "prints no token"),
    ],
)
def test_a_command_that_prints_none_is_one_sentence_without_what_it_prints(command: str, sentence: str) -> None:
    with pytest.raises(ConnectionRefused, match=f"the token command .* {sentence}") as refusal:
        token_of_command(command)
    assert "secret" not in str(refusal.value).replace(repr(command), "")


def test_a_command_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.sources.protocol.tokens.SECONDS", 0.3)
    with pytest.raises(ConnectionRefused, match=r"takes longer than 0\.3 s"):
        token_of_command(printing("abc", seconds=30))


def test_a_token_is_used_until_a_fifth_of_its_life_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [1_000.0], iter(range(9))
    monkeypatch.setattr("streaming.sources.protocol.tokens.time", type("Clock", (), {"time": lambda: now[0]}))
    tokens = Tokens(lambda: Token(str(next(given)), now[0] + 100))

    used = []
    for now[0] in (1_000.0, 1_079.0, 1_080.0, 1_159.0, 1_160.0):
        used.append(tokens.current().value)

    assert used == ["0", "0", "1", "1", "2"]


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ({}, f'sasl.mechanism is .*tokens of OpenID Connect .* or of a command ."{COMMAND}"'),
        ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.client.id is missing; .* requires it"),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",
            },
            "token.endpoint.url is 'file:///etc/passwd'; write https",
        ),
        ({COMMAND: "x", "sasl.oauthbearer.extensions": "a"}, "extensions has 'a'; write key=value,key=value"),
    ],
)
def test_what_is_missing_in_the_configuration_is_said(client: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cluster.client.*{sentence}"):
        from_client({**OAUTH, **client})
