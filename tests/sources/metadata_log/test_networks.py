"""Networks as they are: names with addresses that are dead or silent, nodes that hang up."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import quorum as quorum_module
from streaming.sources.protocol import connection as connection_module
from streaming.sources.protocol import sockets as sockets_module
from streaming.sources.protocol.addresses import Address, Peers, parse_servers
from streaming.sources.protocol.connection import Connection, ServiceRefused, dialer
from streaming.sources.protocol.security import Security, from_client
from streaming.sources.protocol.sockets import Place
from tests.plugins.certificates import make_certificate
from tests.sources.metadata_log import test_connection as logins
from tests.sources.metadata_log.test_sessions import CLUSTER_ID, cluster_of, throttled

NAME = "black.test"


class Host:
    """A name whose addresses a test puts together; 127.0.0.1 answers as Kafka does, at the port of node 1."""

    def __init__(self, port: int, held: ExitStack) -> None:
        self.address = Address(NAME, port)
        self.places: list[Place] = []
        self._held = held

    def has(self, *ips: str) -> None:
        self.places[:] = [Place(socket.AF_INET, socket.SOCK_STREAM, 6, (ip, self.address.port)) for ip in ips]

    def hole(self, ip: str) -> str:
        """Swallow what is sent to an address: its queue of connections is full."""
        listening = self._held.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ip, self.address.port))
        listening.listen(0)
        for _ in range(4):
            one = self._held.enter_context(socket.socket())
            one.settimeout(0.05)
            try:
                one.connect((ip, self.address.port))
            except OSError:
                return ip
        raise AssertionError("no hole")

    def mute(self, ip: str) -> str:
        """Accept at an address, as the kernel does for a process that is stopped, and say nothing."""
        listening = self._held.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ip, self.address.port))
        listening.listen(50)
        return ip


@pytest.fixture
def host(quorum: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with ExitStack() as held:
        made = Host(quorum.nodes[1].port, held)
        monkeypatch.setattr(connection_module, "resolved", lambda *_: list(made.places))
        yield made


def seconds_of(do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began


def trusted(quorum: Any, folder: Path) -> dict[str, str]:
    """Let the nodes speak TLS with a certificate of the name, and return what trusts it."""
    make_certificate(folder, "ca")
    make_certificate(folder, "server", signed_by="ca", names=f"DNS:{NAME}")
    quorum.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    quorum.tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    return {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.crt")}


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_dead_first_address_costs_a_moment_once(quorum: Any, host: Host, tmp_path: Path, *, is_secured: bool) -> None:
    security = from_client(trusted(quorum, tmp_path)) if is_secured else Security()
    host.has(host.hole("127.0.0.3"), "127.0.0.1")
    peers = Peers()
    dial = dialer(security, peers)
    assert seconds_of(lambda: cluster_of(dial(host.address, response_seconds=5))) < 0.6
    other = dialer(security)  # of the same process: it begins with the good one
    assert seconds_of(lambda: cluster_of(other(host.address, response_seconds=5))) < 0.2
    assert peers.at(host.address).errors == 0


@pytest.mark.parametrize("is_secured", [False, True])
def test_an_address_that_accepts_and_is_silent_has_its_share_and_no_more(
    quorum: Any, host: Host, tmp_path: Path, *, is_secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "CONNECT_SECONDS", 0.6)
    security = from_client(trusted(quorum, tmp_path)) if is_secured else Security()
    host.has(host.mute("127.0.0.3"), "127.0.0.1")
    assert seconds_of(lambda: cluster_of(Connection(host.address, security, response_seconds=5))) < 1.5


def test_an_address_that_refuses_costs_nothing_even_among_many(host: Host) -> None:
    host.has(*(f"127.0.0.{number}" for number in range(3, 20)), "127.0.0.1")
    assert seconds_of(lambda: cluster_of(Connection(host.address, Security()))) < 0.3


def test_the_address_that_worked_and_died_costs_a_moment(host: Host) -> None:
    host.has("127.0.0.3", "127.0.0.1")
    peers = Peers()
    sockets_module.begin_with(host.address, host.hole("127.0.0.3"))
    assert seconds_of(lambda: cluster_of(dialer(Security(), peers)(host.address, response_seconds=5))) < 0.6
    assert peers.at(host.address).errors == 0
    assert sockets_module.first_of(host.address) == "127.0.0.1"


def test_the_sentence_has_each_address_with_its_own_reason_and_no_key(
    host: Host, tmp_path: Path, quorum: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 0.3)
    client = trusted(quorum, tmp_path)
    host.has(host.hole("127.0.0.3"), "127.0.0.9", host.mute("127.0.0.4"))
    with pytest.raises(ConnectionRefused) as refusal:
        Connection(host.address, from_client(client))
    sentence = str(refusal.value)
    assert sentence.startswith(f"{host.address} cannot be reached at any of its 3 addresses: ")
    for part in (
        "127.0.0.3 does not answer", "127.0.0.9 fails: Connection refused", "127.0.0.4 accepts connections, but is si"
    ):  # fmt: skip
        assert part in sentence
    assert "keys" not in sentence


def test_the_only_address_that_is_silent_is_not_blamed_on_the_keys(
    host: Host, tmp_path: Path, quorum: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 0.2)
    security = from_client(trusted(quorum, tmp_path))
    for ip, sentence in (
        (host.hole("127.0.0.3"), "cannot be reached: it does not answer"),
        (host.mute("127.0.0.4"), "accepts connections, but is silent in the TLS handshake"),
    ):
        host.has(ip)
        with pytest.raises(ConnectionRefused, match=f"{NAME}.*{sentence}$"):
            Connection(host.address, security)


def test_after_silent_addresses_the_next_attempt_begins_with_those_that_were_not_tried(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "CONNECT_SECONDS", 0.9)
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 0.1)
    host.has(*(host.mute(f"127.0.0.{number}") for number in range(3, 6)), "127.0.0.1")
    dial = dialer(Security(), Peers())
    for _ in range(4):
        with suppress(ConnectionRefused):
            assert cluster_of(dial(host.address, response_seconds=1)) == CLUSTER_ID
            return
    raise AssertionError("the good address was never tried")


def test_a_refused_login_is_the_last_word_of_all_addresses(quorum: Any, host: Host) -> None:
    quorum.login = logins.Server
    host.has("127.0.0.1", host.hole("127.0.0.3"))
    security = from_client({**logins.LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": "wrong"})
    with pytest.raises(ServiceRefused, match="refuses the login of 'reader'"):
        Connection(host.address, security)


def test_a_round_trip_of_a_fifth_of_a_second_behind_a_dead_address_connects(
    quorum: Any, host: Host, tmp_path: Path
) -> None:
    """Far away: each direction takes 0.1 s, behind a proxy, for connections are made by the kernel at once."""
    client = trusted(quorum, tmp_path)

    def late(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(0.1)
                target.sendall(data)

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", quorum.nodes[1].port))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=late, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.5", quorum.nodes[1].port)) as proxy:
        threading.Thread(target=serve, args=(proxy,), daemon=True).start()
        quorum.login = logins.Server
        client |= {**logins.LOGIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
        host.has(host.hole("127.0.0.3"), "127.0.0.5", host.hole("127.0.0.6"))
        assert cluster_of(Connection(host.address, from_client(client))) == CLUSTER_ID


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_node_that_hangs_up_while_nothing_is_asked_is_connected_again(
    quorum: Any, host: Host, tmp_path: Path, *, is_secured: bool
) -> None:
    security = from_client(trusted(quorum, tmp_path)) if is_secured else Security()
    host.has("127.0.0.1")
    peers = Peers()
    connection = dialer(security, peers)(host.address, response_seconds=5)
    reopened = list[int]()
    connection.after_reopening = lambda: reopened.append(len(reopened) + 1)
    for _ in range(3):
        assert cluster_of(connection) == CLUSTER_ID
        quorum.nodes[1].disconnect()
        time.sleep(0.02)
    assert cluster_of(connection) == CLUSTER_ID
    assert peers.at(host.address).errors == 0
    assert reopened == [1, 2, 3]
    connection.after_reopening = lambda: (_ for _ in ()).throw(ServiceRefused("another node"))
    quorum.nodes[1].disconnect()
    time.sleep(0.02)
    for reason in ("another node", "is closed"):  # and it is not asked again
        with pytest.raises(ConnectionRefused, match=reason):
            cluster_of(connection)


def test_a_connection_that_was_closed_here_is_not_opened_again(address: Address) -> None:
    connection = Connection(address, Security())
    connection.close()
    with pytest.raises(ConnectionRefused, match="is closed"):  # by us: nobody wants it any more
        cluster_of(connection)


def test_a_node_that_has_died_is_an_error(quorum: Any, address: Address) -> None:
    peers = Peers()
    connection = dialer(Security(), peers)(address, response_seconds=5)
    quorum.nodes[1].stop()
    time.sleep(0.02)
    with pytest.raises(ConnectionRefused, match="cannot be reached: Connection refused"):
        cluster_of(connection)
    assert peers.at(address).errors == 1


def test_a_response_is_waited_for_beyond_the_time_that_a_quota_takes(quorum: Any, address: Address) -> None:
    throttled(quorum, 600)
    connection = Connection(address, Security(), response_seconds=0.3)
    cluster_of(connection)
    late = quorum.nodes[1].answer_MetadataRequest
    quorum.nodes[1].answer_MetadataRequest = lambda one: (time.sleep(0.6), late(one))[1]  # muted
    assert cluster_of(connection) == CLUSTER_ID


def test_a_node_that_drips_is_given_up_in_time() -> None:
    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(struct.pack(">i", 1000))
            while True:
                connection.sendall(b"0")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(ConnectionRefused, match="did not respond in time"):
            Connection(Address("127.0.0.1", listener.getsockname()[1]), Security(), response_seconds=0.3)
        assert time.monotonic() - began < 3


def test_a_quorum_without_a_leader_is_said_soon_blaming_no_broker(quorum: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_module, "PATIENCE_SECONDS", 0.3)
    for node in quorum.nodes.values():
        answer = node.answer_DescribeQuorumRequest
        node.answer_DescribeQuorumRequest = lambda it, answer=answer: (time.sleep(0.4), answer(it))[1]
    quorum.quorum_error = 14
    bootstrap = quorum_module.Bootstrap(parse_servers(quorum.addresses()), connection_module.dialer(Security()))
    with pytest.raises(ConnectionRefused, match=r"^brokers answer, but not who leads the metadata quorum: ") as refusal:
        bootstrap.quorum()
    assert str(refusal.value).count("has no leader") == 1
