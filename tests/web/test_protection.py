"""TLS, certificates of clients and logins, over real connections."""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from streaming.runtime.listening import address_of, listen
from streaming.web import protection
from streaming.web.protection import Logins, Protection
from streaming.web.server import SECURITY_HEADERS, WebServer, serving
from tests.plugins.certificates import make_certificate

TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
CLIENTS = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt\n"
LONG = "x" * 100


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()


USERS = f"basic_auth_users:\n  me: {hashed('secret')}\n  long: {hashed(LONG)}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for authority in ("authority", "clients", "strangers"):
        make_certificate(tmp_path, authority)
    make_certificate(tmp_path, "server", signed_by="authority")
    make_certificate(tmp_path, "client", signed_by="clients", names="DNS:prometheus.example,IP:::1")
    make_certificate(tmp_path, "stranger", signed_by="strangers")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


@contextmanager
def server(folder: Path, text: str) -> Iterator[str]:
    protected = Protection(write(folder, text))
    opened = listen("127.0.0.1:0", "--listen")
    address = address_of(opened)
    routes = [Route("/", lambda _: PlainTextResponse("content"))]
    with serving(WebServer(Starlette(routes=routes), [opened], protected)):
        yield address


def trusting(folder: Path, client: str = "", authority: str = "authority") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / f"{authority}.crt"))
    if client:
        context.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    return context


def get(url: str, context: ssl.SSLContext | None = None, login: str = "") -> tuple[int, Any, bytes]:
    request = urllib.request.Request(url)  # noqa: S310 - our own server
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as response:  # noqa: S310 - our own server
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read()


def is_refused(address: str, context: ssl.SSLContext) -> bool:
    """Whether nothing is served: TLS 1.3 refuses a client's certificate after the handshake."""
    try:
        get(f"https://{address}/", context)
    except OSError:  # also ssl.SSLError, URLError
        return True
    return False


def test_tls_serves_those_who_trust_its_authority_and_nobody_without_tls(folder: Path) -> None:
    with server(folder, TLS) as address:
        assert get(f"https://{address}/", trusting(folder))[2] == b"content"
        assert is_refused(address, trusting(folder, authority="strangers"))
        with pytest.raises(OSError, match=r"closed|reset"):
            get(f"http://{address}/")


def test_versions_and_suites_are_those_of_the_file(folder: Path) -> None:
    suite = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n  max_version: TLS12\n"
    with server(folder, TLS + suite) as address:
        host, _, port = address.partition(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            trusting(folder).wrap_socket(plain, server_hostname=host) as secured,
        ):
            assert (secured.version(), secured.cipher()[0]) == ("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305")
        newer = trusting(folder)
        newer.minimum_version = ssl.TLSVersion.TLSv1_3
        assert is_refused(address, newer)


@pytest.mark.parametrize("kind", ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven"])
def test_a_client_that_must_or_may_have_a_certificate_needs_one_of_the_authority(folder: Path, kind: str) -> None:
    with server(folder, CLIENTS.replace("RequireAndVerifyClientCert", kind)) as address:
        assert get(f"https://{address}/", trusting(folder, "client"))[2] == b"content"
        assert is_refused(address, trusting(folder)) is (kind == "RequireAndVerifyClientCert")
        assert is_refused(address, trusting(folder, "stranger"))


@pytest.mark.parametrize(("name", "is_allowed"), [("prometheus.example", True), ("::1", True), ("other", False)])
def test_a_client_needs_one_of_the_names(name: str, is_allowed: bool, folder: Path) -> None:  # noqa: FBT001 - a case
    with server(folder, f'{CLIENTS}  client_allowed_sans: [other.example, "{name}"]\n') as address:
        assert is_refused(address, trusting(folder, "client")) is not is_allowed


def test_a_replaced_certificate_is_served_without_a_restart(folder: Path) -> None:
    with server(folder, TLS) as address:
        assert get(f"https://{address}/", trusting(folder))[0] == 200
        make_certificate(folder, "server", signed_by="clients")
        assert get(f"https://{address}/", trusting(folder, authority="clients"))[0] == 200
        assert is_refused(address, trusting(folder))


def test_certificates_that_come_after_the_file_that_names_them_are_served(folder: Path) -> None:
    with server(folder, TLS) as address:
        write(folder, TLS.replace("server.", "renewed."))
        assert get(f"https://{address}/", trusting(folder))[0] == 200
        make_certificate(folder, "renewed", signed_by="clients")
        assert get(f"https://{address}/", trusting(folder, authority="clients"))[0] == 200


def test_a_certificate_that_may_be_read_since_now_is_read_again(folder: Path) -> None:
    protected = Protection(write(folder, TLS))
    before = protected.rules
    assert protected.rules is before
    time.sleep(0.02)  # the resolution of the file system's clock
    (folder / "server.key").chmod(0o640)
    assert protected.rules is not before


def test_half_a_replaced_certificate_is_not_served(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with server(folder, TLS) as address:
        shutil.copy(folder / "client.key", folder / "server.key")
        for _ in range(3):
            assert get(f"https://{address}/", trusting(folder))[0] == 200
    (line,) = [record.getMessage() for record in caplog.records if "what was read before" in record.getMessage()]
    assert "not a PEM certificate with its key" in line


def test_users_log_in_and_nobody_else(folder: Path) -> None:
    with server(folder, USERS) as address:
        status, headers, body = get(f"http://{address}/")
        assert (status, headers["WWW-Authenticate"], body) == (401, "Basic", b"log in\n")
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        for wrong in ("me:wrong", "nobody:secret", "me", "me:", ":", "me:secret\0", f"long:{LONG[:71]}"):
            assert get(f"http://{address}/", login=wrong)[0] == 401
        for right in ("me:secret", "me:secret", f"long:{LONG}"):
            assert get(f"http://{address}/", login=right)[2] == b"content"


def test_bytes_beyond_ascii_are_no_login_and_no_fault(folder: Path) -> None:
    with server(folder, USERS) as address:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic \xe9\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "header", ["Bearer x", "Basic", "Basic ?", "Basic bWU=", "basic Og==", "Basic \xe9", "Basic bWU6\xff"]
)
def test_a_header_that_is_no_login_is_refused(header: str) -> None:
    assert asyncio.run(Logins({"me": hashed("secret")}).accept(header)) is False


def test_a_right_password_is_computed_once_and_a_wrong_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []
    real = bcrypt.checkpw
    monkeypatch.setattr(protection.bcrypt, "checkpw", lambda *given: computed.append(given[0]) or real(*given))
    users = Logins({"me": hashed("secret")})

    async def ask(*logins: str) -> list[bool]:
        return [await users.accept(f"Basic {base64.b64encode(login.encode()).decode()}") for login in logins]

    assert asyncio.run(ask("me:secret", "me:secret", "me:secret", "me:no", "me:no")) == [True] * 3 + [False] * 2
    assert computed == [b"secret", b"no", b"no"]


def test_an_unknown_user_takes_as_long_as_one_that_exists() -> None:
    users = Logins({"me": bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()})

    def seconds(login: str) -> float:
        began = time.process_time()
        asyncio.run(users.accept(f"Basic {base64.b64encode(login.encode()).decode()}"))
        return time.process_time() - began

    existing, unknown = (min(seconds(f"{name}:wrong") for _ in range(3)) for name in ("me", "nobody"))
    assert 0.5 < unknown / existing < 2


def test_a_changed_user_and_header_apply_at_once(folder: Path) -> None:
    with server(folder, USERS) as address:
        assert get(f"http://{address}/", login="me:secret")[0] == 200
        headers = "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n    Content-Security-Policy: ''\n"
        write(folder, USERS.replace("  me:", "  you:") + headers)
        assert get(f"http://{address}/", login="me:secret")[0] == 401
        status, sent, _ = get(f"http://{address}/", login="you:secret")
        assert (status, sent["X-Frame-Options"], sent["Content-Security-Policy"]) == (200, "sameorigin", None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, "has no TLS, certificates of clients or logins any more") for text in ("", TLS, TLS + USERS)),
        (f"{CLIENTS}basic_auth_users:\n  me: [", "is not YAML"),
    ],
)
def test_what_protects_is_not_switched_off_by_half_a_file(
    text: str, sentence: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server(folder, CLIENTS + USERS) as address:
        write(folder, text)
        assert is_refused(address, trusting(folder))
        assert get(f"https://{address}/", trusting(folder, "client"))[0] == 401
        assert get(f"https://{address}/", trusting(folder, "client"), "me:secret")[0] == 200
    assert sentence in caplog.text


def test_a_client_that_begins_no_handshake_gives_way(folder: Path) -> None:
    protected = Protection(write(folder, TLS))
    opened = listen("127.0.0.1:0", "--listen")
    address = opened.getsockname()
    routes = [Route("/", lambda _: PlainTextResponse("content"))]
    with serving(WebServer(Starlette(routes=routes), [opened], protected, most_connections=2)):
        half_open = [socket.create_connection(address) for _ in range(6)]
        for each in half_open:
            each.sendall(b"\x16")  # the first byte of a handshake
        assert get(f"https://127.0.0.1:{address[1]}/", trusting(folder))[2] == b"content"
        for each in half_open:
            each.close()
