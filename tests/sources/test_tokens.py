"""Tokens for OAUTHBEARER: of an OpenID Connect provider, of a command; and what is said where there is none."""

from __future__ import annotations

import base64
import json
import shlex
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.protocol.security import from_client
from streaming.sources.protocol.tokens import COMMAND, Token, Tokens, token_of_command
from tests.sources.conftest import answer

OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
CREDENTIALS = {
    **OAUTH,
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "ann",
    "sasl.oauthbearer.client.secret": "p:w",
}


def jwt(**claims: Any) -> str:
    """A token that nobody signed, as Kafka takes it where no validator is configured."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join([*parts, b""]).decode()


def printing(text: str, code: int = 0, seconds: float = 0) -> str:
    """A command that prints a text."""
    program = f"import sys, time; time.sleep({seconds}); print({text!r}); sys.exit({code})"
    return shlex.join([sys.executable, "-c", program])


class Provider:
    """Gives tokens to client ``ann`` with secret ``p:w``."""

    def __init__(self, serve: Callable[..., str]) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.answer = json.dumps({"access_token": "abc", "expires_in": 1000}), 200
        self.address = serve(self.handle).replace("metrics", "token")

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode()))
        login = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        answer(*self.answer if login == "ann:p%3Aw" else ("", 401))(request)


@pytest.fixture
def provider(serve: Callable[..., str]) -> Provider:
    return Provider(serve)


def oidc(provider: Provider, **more: str) -> dict[str, str]:
    return {
        **CREDENTIALS,
        "sasl.oauthbearer.token.endpoint.url": provider.address,
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
    ("said", "sentence"),
    [
        (("", 403), r"refuses client 'ann': HTTP 403; check sasl.oauthbearer"),
        (("{}", 200), r"answers without an access_token"),
        (('{"access_token": 7}', 200), r"answers without an access_token"),
        (("<html>", 200), r"answers without an access_token"),
        (("\udcff", 200), r"does not answer"),  # which is not UTF-8
    ],
)
def test_a_provider_that_gives_none_is_one_sentence_without_the_secret(
    provider: Provider, said: tuple[str, int], sentence: str
) -> None:
    provider.answer = said
    with pytest.raises(ConnectionRefused, match=f"the token endpoint http://.*/token {sentence}") as refusal:
        first_bytes(oidc(provider))
    assert "p:w" not in str(refusal.value)


def test_a_wrong_secret_and_a_provider_that_is_down_are_said(provider: Provider) -> None:
    with pytest.raises(ConnectionRefused, match="HTTP 401"):
        first_bytes({**oidc(provider), "sasl.oauthbearer.client.secret": "x"})
    with pytest.raises(ConnectionRefused, match="does not answer"):
        first_bytes({**oidc(provider), "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"})
    with pytest.raises(ConnectionRefused, match="does not answer: nonnumeric port"):
        first_bytes({**oidc(provider), "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:http/token"})


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
    monkeypatch.setattr("streaming.sources.protocol.tokens.time", SimpleNamespace(time=lambda: now[0], monotonic=float))
    tokens = Tokens(lambda: Token(str(next(given)), now[0] + 100))
    used = []
    for now[0] in (1_000.0, 1_079.0, 1_080.0, 1_159.0, 1_160.0):
        used.append(tokens.current().value)
    assert used == ["0", "0", "1", "1", "2"]


def test_a_token_that_is_refused_is_given_up_however_long_it_holds_unless_it_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the provider has another key, or the clock here was set back an hour."""
    now, passed, given = [10_000.0], [50.0], iter(range(9))
    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: passed[0])
    monkeypatch.setattr("streaming.sources.protocol.tokens.time", clock)
    tokens = Tokens(lambda: Token(str(next(given)), now[0] + 600))
    assert tokens.current().value == "0"
    now[0] -= 3_600
    for passed[0], used in ((53.0, "0"), (56.0, "1"), (57.0, "1"), (62.0, "2")):
        tokens.refused()
        assert tokens.current().value == used


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ({}, f'sasl.mechanism is .* where its tokens come from: .* for OpenID Connect, or "{COMMAND}"'),
        ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.client.id is missing; .* requires it"),
        (
            {**CREDENTIALS, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"},
            "token.endpoint.url is 'file:///etc/passwd'; write https",
        ),
        ({COMMAND: "x", "sasl.oauthbearer.extensions": "a"}, "extensions has 'a'; write key=value,key=value"),
    ],
)
def test_what_is_missing_in_the_configuration_is_said(client: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cluster.client.*{sentence}"):
        from_client({**OAUTH, **client})
