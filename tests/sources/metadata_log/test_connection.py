"""Logging in and being refused: TLS, SASL PLAIN, SCRAM as RFC 5802 has it, and nodes that are no Kafka."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.settings import ClusterSettings, ControllersSettings
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.messages import LogEnd
from streaming.sources.metadata_log.opening import login_of_controllers
from streaming.sources.protocol import connection as connection_module
from streaming.sources.protocol import sockets as sockets_module
from streaming.sources.protocol.addresses import Address, Peers, parse_servers
from streaming.sources.protocol.connection import Connection, NodeTooOld, ServiceRefused, dialer
from streaming.sources.protocol.security import IGNORED, USED, Security, from_client
from streaming.sources.protocol.sockets import Place
from streaming.sources.protocol.tls import SUPPORTED
from streaming.sources.protocol.tokens import COMMAND
from tests.sources.metadata_log.conftest import FIXTURES

OFFERED = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CERTIFICATE, KEY = FIXTURES / "tls" / "certificate.pem", FIXTURES / "tls" / "key.pem"
TLS = {"security.protocol": "SSL"}
LOGIN_OF_NOBODY = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "reader", "sasl.password": "pencil"}


class Server:
    """The server's side of one login: user ``reader``, password ``pencil``."""

    def __init__(self) -> None:
        self.is_done = False
        self._mechanism = ""
        self._first = ""

    def answer(self, request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            self._mechanism = request.mechanism
            error = 0 if self._mechanism in OFFERED else 33
            return SaslHandshakeResponse(error_code=error, mechanisms=OFFERED)
        said = bytes(request.auth_bytes)
        reply = self._plain(said) if self._mechanism == "PLAIN" else self._scram(said.decode())
        if reply is None:
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed", auth_bytes=b"")
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=reply, session_lifetime_ms=0)

    def _plain(self, said: bytes) -> bytes | None:
        self.is_done = said.split(b"\0")[1:] == [b"reader", b"pencil"]
        return b"" if self.is_done else None

    def _scram(self, said: str) -> bytes | None:
        if not self._first:
            bare = said.removeprefix("n,,")
            nonce = bare.split("r=")[1]
            first = f"r={nonce}server,s={base64.b64encode(b'salt').decode()},i=4096"
            self._first = f"{bare},{first}"
            return first.encode()
        without_proof, proof = said.rsplit(",p=", 1)
        algorithm = "sha" + self._mechanism.rsplit("-", 1)[1]
        salted = hashlib.pbkdf2_hmac(algorithm, b"pencil", b"salt", 4096)
        message = f"{self._first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return None
        self.is_done = True
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        return b"v=" + base64.b64encode(hmac.digest(server_key, message, algorithm))


def ask(connection: Connection) -> str:
    answer = connection.call(MetadataRequest(version=12, topics=[]), MetadataResponse, lambda one: one)
    connection.close()
    return str(answer.cluster_id)


@pytest.fixture
def tls(quorum: Any) -> Path:
    """Let the nodes speak TLS; give their certificate, which signs itself."""
    quorum.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    quorum.tls.load_cert_chain(CERTIFICATE, KEY)
    return CERTIFICATE


@pytest.mark.parametrize("mechanism", OFFERED)
@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_the_right_password_logs_in(quorum: Any, address: Address, mechanism: str, key: str) -> None:
    quorum.login = Server
    connection = Connection(address, from_client({**LOGIN, key: mechanism}))
    assert ask(connection) == "4L6g3nShT-eMCtK--X86sw"


def test_a_node_that_is_too_old_for_our_login_says_so_before_it_is_tried(quorum: Any, address: Address) -> None:
    quorum.login, quorum.versions = Server, {17: 0}
    with pytest.raises(NodeTooOld, match=r"older than Kafka 1\.0"):
        Connection(address, from_client({**LOGIN, "sasl.mechanism": "PLAIN"}))


@pytest.mark.parametrize("mechanism", OFFERED)
def test_a_wrong_password_is_one_sentence_without_the_password(quorum: Any, address: Address, mechanism: str) -> None:
    quorum.login = Server
    security = from_client({**LOGIN, "sasl.mechanism": mechanism, "sasl.password": "hunter2"})
    sentence = "refuses the login of 'reader': Authentication failed; check sasl"
    with pytest.raises(ServiceRefused, match=sentence) as refusal:
        Connection(address, security)
    assert "hunter2" not in f"{refusal.value}{security!r}"


class TokenServer:
    """The server's side of OAUTHBEARER (RFC 7628): takes the token ``abc``."""

    def __init__(self) -> None:
        self.is_done = False

    def answer(self, request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])
        self.is_done = b"auth=Bearer abc\x01" in bytes(request.auth_bytes)
        code, said = (0, None) if self.is_done else (58, "invalid_token")
        return SaslAuthenticateResponse(error_code=code, error_message=said, auth_bytes=b"", session_lifetime_ms=0)


TOKENS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def test_a_token_logs_in_and_a_wrong_one_is_one_sentence_without_it(
    quorum: Any, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum.login = TokenServer
    assert ask(Connection(address, from_client({**TOKENS, COMMAND: "echo abc"}))) == "4L6g3nShT-eMCtK--X86sw"
    with pytest.raises(ServiceRefused, match=r"refuses the token: invalid_token; check sasl\.oauthbearer") as refusal:
        Connection(address, from_client({**TOKENS, COMMAND: "printf %s%s xy z"}))
    assert "xyz" not in str(refusal.value)
    security, monotonic = from_client({**TOKENS, COMMAND: "echo xyz"}), partial(next, count(10, 10))
    monkeypatch.setattr("streaming.sources.protocol.tokens.time", SimpleNamespace(time=time.time, monotonic=monotonic))
    assert security.tokens is not None
    old = security.tokens.current()
    with pytest.raises(ServiceRefused):
        Connection(address, security)
    assert security.tokens.current() is not old


def test_a_mechanism_that_is_lacking_is_refused(quorum: Any, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum.login = Server
    monkeypatch.setattr(f"{__name__}.OFFERED", ["SCRAM-SHA-512"])
    sentence = r"does not offer PLAIN; set cluster\.client sasl\.mechanism to one of SCRAM-SHA"
    with pytest.raises(ServiceRefused, match=sentence):
        Connection(address, from_client({**LOGIN, "sasl.mechanism": "PLAIN"}))


def test_what_controllers_refuse_is_to_be_changed_in_their_own_table(
    quorum: Any, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers accept the login of the other one: its change would end that."""
    quorum.login = Server
    monkeypatch.setattr(f"{__name__}.OFFERED", ["SCRAM-SHA-512"])
    login = {**LOGIN, "sasl.mechanism": "PLAIN"}
    of_brokers = ClusterSettings(bootstrap_servers=str(address), client=login)
    own = replace(of_brokers, client={}, controllers=ControllersSettings(client=login))
    for cluster, table in (
        (of_brokers, "cluster.controllers.client (now that of cluster.client)"),
        (own, "cluster.controllers.client"),
    ):
        with pytest.raises(ServiceRefused) as refusal:
            Connection(address, login_of_controllers(cluster))
        assert str(refusal.value).endswith(f"not offer PLAIN; set {table} sasl.mechanism to one of SCRAM-SHA-512")


def test_a_server_that_wants_a_login_and_gets_none_hangs_up(quorum: Any, address: Address) -> None:
    quorum.login = Server
    with pytest.raises(ConnectionRefused, match="closed the connection"):
        ask(Connection(address, Security()))


def test_requests_bytes_and_errors_of_an_address_are_as_the_node_counts_them(quorum: Any, address: Address) -> None:
    peers = Peers()
    for _ in range(3):
        ask(dialer(Security(), peers)(address, response_seconds=5))
    peer = peers.at(address)
    assert (peer.requests, peer.errors) == (6, 0)  # ApiVersions and Metadata
    assert (peer.sent_bytes, peer.received_bytes) == (quorum.received_bytes, quorum.sent_bytes)


def test_a_refused_connection_and_login_and_a_lost_connection_are_one_error_each(quorum: Any, address: Address) -> None:
    peers = Peers()
    with pytest.raises(ConnectionRefused):
        dialer(Security(), peers)(Address("127.0.0.1", 1), response_seconds=5)
    assert peers.at(Address("127.0.0.1", 1)).errors == 1
    quorum.login = Server
    security = from_client({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": "wrong"})
    with pytest.raises(ServiceRefused):
        dialer(security, peers)(address, response_seconds=5)
    assert peers.at(address).errors == 1
    with pytest.raises(ConnectionRefused):  # without the login the node hangs up
        ask(dialer(Security(), peers)(address, response_seconds=5))
    assert peers.at(address).errors == 2


VERIFICATION = "enable.ssl.certificate.verification"


@pytest.mark.parametrize(
    "client",
    [
        {"security.protocol": "ssl", "ssl.ca.location": str(CERTIFICATE)},
        {"ssl.endpoint.identification.algorithm": "none", "ssl.ca.location": str(CERTIFICATE)},
        *({VERIFICATION: written} for written in ("false", "0", "f", "FALSE")),  # as librdkafka reads it
    ],
)
@pytest.mark.usefixtures("tls")
def test_tls_is_believed_with_the_right_authority_or_without_checks(address: Address, client: dict[str, str]) -> None:
    assert ask(Connection(address, from_client({**TLS, **client})))


def test_the_authorities_may_be_a_folder_or_pem_itself(tls: Path, address: Address, tmp_path: Path) -> None:
    command = ["openssl", "x509", "-hash", "-noout", "-in", tls]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(tls, tmp_path / f"{name}.0")
    for given in ({"ssl.ca.location": str(tmp_path)}, {"ssl.ca.pem": tls.read_text()}):
        assert ask(Connection(address, from_client({**TLS, **given})))


def test_a_renewed_certificate_is_used_by_the_next_connection(tls: Path, address: Address, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    shutil.copy(tls, authorities)
    security = from_client({**TLS, "ssl.ca.location": str(authorities)})
    authorities.write_text("being replaced")
    with pytest.raises(ServiceRefused, match=r"cluster\.client ssl\.ca\.location cannot be used: .*ca\.pem"):
        Connection(address, security)
    shutil.copy(tls, authorities)
    assert ask(Connection(address, security))


@pytest.mark.usefixtures("tls")
def test_a_certificate_of_nobody_known_is_refused(address: Address) -> None:
    with pytest.raises(ConnectionRefused, match=r"is not trusted here \(self-signed .*\): check the ssl keys"):
        Connection(address, from_client(TLS))


def test_a_login_inside_tls_works_as_well(quorum: Any, tls: Path, address: Address) -> None:
    quorum.login = Server
    client = {**LOGIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(tls)}
    assert ask(Connection(address, from_client(client)))


@pytest.mark.parametrize(
    "own",
    [
        {"ssl.certificate.location": str(CERTIFICATE), "ssl.key.location": str(KEY)},
        {"ssl.certificate.pem": CERTIFICATE.read_text(), "ssl.key.pem": KEY.read_text()},
    ],
    ids=["files", "pem"],
)
def test_a_client_certificate_is_shown_to_servers_that_ask(
    quorum: Any, tls: Path, address: Address, own: dict[str, str]
) -> None:
    quorum.tls.verify_mode = ssl.CERT_REQUIRED
    quorum.tls.load_verify_locations(tls)
    client = {**TLS, "ssl.ca.location": str(tls)}
    assert ask(Connection(address, from_client({**client, **own})))
    with pytest.raises(ConnectionRefused):
        ask(Connection(address, from_client(client)))


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ({"security.protocol": "PLAIN"}, "security.protocol is 'PLAIN'; use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SA"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI', but isrwatch logs in with PLAIN, SCRAM-"),
        ({**LOGIN, "sasl.mechanisms": "GSSAPI"}, "sasl.mechanisms is 'GSSAPI', but isrwatch logs in with PLAIN, SCRAM"),
        (TOKENS, "sasl.mechanism is 'OAUTHBEARER', but nothing says where its tokens come from: set "),
        (
            {**TOKENS, "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            "enable.sasl.oauthbearer.unsecure.jwt is unknown,",
        ),
        ({**TOKENS, "sasl.oauthbearer.config": "principal=me"}, "sasl.oauthbearer.config is not supported; remove it,"),
        (LOGIN_OF_NOBODY, "sasl.username is missing; PLAIN requires it"),
        ({**TLS, "ssl.ca.location": "/nowhere"}, "ssl.ca.location cannot be used: /nowhere"),
        ({**TLS, "ssl.certificate.location": "/nowhere"}, "ssl.certificate.location cannot be used: /nowhere"),
        ({**TLS, "ssl.keystore.location": "/nowhere"}, "ssl.keystore.location cannot be used: /nowhere"),
        (
            {**TLS, "ssl.providers": "legacy"},
            "ssl.providers is not supported: remove it, or use one of ssl.ca.location",
        ),
        (
            {"bootstrap.servers": "b:1"},
            "bootstrap.servers has no effect; remove it: cluster.bootstrap_servers has the a",
        ),
        ({"sasl.user": "reader"}, "sasl.user is unknown, or not supported; correct or remove it. Those that "),
        ({**TLS, VERIFICATION: "no"}, f"{VERIFICATION} is 'no'; write true or false"),
    ],
)
def test_a_wrong_property_is_named(client: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        from_client(client)
    assert f"cluster.client {sentence}" in str(refusal.value)


def test_controllers_with_a_login_that_there_is_not_need_not_be_asked() -> None:
    with pytest.raises(ConfigurationError, match=r'^cluster\.controllers\.client .*, or set collect.* = "poll"'):
        from_client({**LOGIN, "sasl.mechanism": "GSSAPI"}, "cluster.controllers.client")


def test_properties_that_change_nothing_here_are_left_alone() -> None:
    assert from_client(dict.fromkeys(IGNORED, "1000")) == Security()


def test_every_property_but_our_own_is_spelled_as_librdkafka_does() -> None:
    unknown = set()
    for key in {*USED, *SUPPORTED, *IGNORED}:
        with pytest.raises(KafkaException) as refusal:  # of the first that is wrong
            AdminClient({key: "true", "nonsense": "true"})
        if f'No such configuration property: "{key}"' in str(refusal.value):
            unknown.add(key)
    assert unknown == {COMMAND, "ssl.truststore.password"}  # a store of Java's clients


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not respond in Kafka's protocol; check security.protocol and the port"),
        (struct.pack(">i", 6) + b"\0\0\0\1\0\0", "sent a response that cannot be decoded"),
        (struct.pack(">iih", 16, 99, 35) + bytes(10), "responded to another request than the one sent"),
        (b"\0\0", "closed the connection: end of stream"),
    ],
)
def test_what_is_no_kafka_is_one_sentence(listener: socket.socket, said: bytes, sentence: str) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(said)

    server = threading.Thread(target=serve)
    server.start()
    with pytest.raises(ConnectionRefused) as refusal:
        Connection(Address("127.0.0.1", listener.getsockname()[1]), Security())
    server.join()
    assert sentence in str(refusal.value)


def test_a_name_that_nobody_resolves_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(sockets_module.socket, "getaddrinfo", lambda *_, **__: is_over.wait(60) and [])
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ConnectionRefused, match="kafka:9092 cannot be reached: its name is not resolved in time"):
        Connection(Address("kafka", 9092), Security())
    is_over.set()


def test_a_name_that_cannot_be_one_is_one_sentence() -> None:
    with pytest.raises(ConnectionRefused, match=r"cannot be reached: .*label"):
        Connection(Address("a" * 70 + ".example", 9092), Security())


def test_addresses_are_read_with_ipv6_and_spaces() -> None:
    expected = (Address("a.example", 9092), Address("::1", 9093))
    assert expected == parse_servers(" a.example:9092, [::1]:9093 ,")
    assert [str(one) for one in expected] == ["a.example:9092", "[::1]:9093"]


@pytest.mark.parametrize("servers", ["", " , ", "host", "host:0", "host:70000", "http://host:9092", "::1:9092"])
def test_an_address_that_is_none_is_named(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^cluster\.bootstrap_servers"):
        parse_servers(servers)


def test_the_requests_are_byte_for_byte_those_that_controllers_were_seen_to_accept() -> None:
    fields: dict[str, Any] = {"leader_epoch": 5, "end": LogEnd(100, 4), "high_watermark": 77, "wait_ms": 500}
    request = messages.fetch_request(17, cluster_id="", **fields)
    request.cluster_id = None
    expected = (
        "000001f4 00000001 00800000 00 00000000 ffffffff 02 00000000000000000000000000000001 02 00000000 00000005"
        "0000000000000064 00000004 ffffffffffffffff 00800000 00 00 01 01 00"
    )
    assert bytes.fromhex(expected) == request.encode()
    newest = messages.fetch_request(18, cluster_id="", **fields)
    newest.cluster_id = None
    expected = expected.replace("00800000 00 00 01 01", "00800000 01 01 08 000000000000004d 00 01 01")
    assert bytes.fromhex(expected) == newest.encode()
    snapshot = messages.fetch_snapshot_request(1, cluster_id="c", leader_epoch=3, snapshot=LogEnd(7, 2), position=5)
    snapshot.cluster_id = None
    expected = (
        "ffffffff 00100000 02 13 5f5f636c75737465725f6d65746164617461 02 00000000 00000003 0000000000000007 00000002 00"
        "0000000000000005 00 00 00"
    )
    assert bytes.fromhex(expected) == snapshot.encode()


def test_an_address_of_a_family_that_the_machine_does_not_have_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an IPv6 address is where the kernel has no IPv6: names still resolve to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        families = ((1 << 20, ("::1", 1)), (socket.AF_INET, listening.getsockname()))
        found = [Place(family, socket.SOCK_STREAM, 0, at) for family, at in families]
        monkeypatch.setattr(connection_module, "resolved", lambda *_: found)

        def hang_up() -> None:
            listening.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ConnectionRefused, match=r"::1 fails: Address family .*127\.0\.0\.1 closed the connection"):
            Connection(Address("broker-1", 9092), Security())
    monkeypatch.setattr(connection_module, "resolved", lambda *_: found[:1])
    with pytest.raises(ConnectionRefused, match="cannot be reached: Address family not supported"):
        Connection(Address("broker-1", 9092), Security())
