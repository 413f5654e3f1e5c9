"""Networks as they are: names with addresses that are dead or silent, sessions that end, nodes that hang up, quotas."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.messages import LogEnd
from streaming.sources.metadata_log.quorum import _brokers, _cluster_id, _quorum
from streaming.sources.permissions import ANYBODY
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.reassignments import listed
from streaming.sources.protocol import connection as connection_module
from streaming.sources.protocol import sockets as sockets_module
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import Connection, ServiceRefused, Session, dialer
from streaming.sources.protocol.security import Security, from_client
from streaming.sources.protocol.sockets import Place, resolved
from streaming.sources.protocol.tokens import COMMAND
from streaming.sources.samples.directories import describe_directories
from streaming.sources.samples.groups.described import DescribedGroup, describe_groups, list_groups
from streaming.sources.samples.offsets import HIGH_WATERMARK, list_offsets
from streaming.sources.samples.quorum import describe_quorum
from streaming.sources.samples.settings import describe_features
from streaming.sources.samples.speed import response_micros
from streaming.sources.samples.transactions import describe_producers, open_transactions
from tests.plugins.certificates import make_certificate
from tests.sources.metadata_log import test_connection as logins

NAME = "black.test"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


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


def cluster_of(connection: Connection) -> str:
    answer = connection.call(MetadataRequest(version=12, topics=[]), MetadataResponse, lambda one: one)
    return str(answer.cluster_id)


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


def found(*ips: str) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 9092)) for ip in ips]


def test_a_slow_resolver_is_asked_once_and_its_late_answer_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, go_on = list[str](), threading.Event()

    def slow(host: str, *_: Any, **__: Any) -> list[Any]:
        calls.append(host)
        go_on.wait(30)
        return found("127.0.0.7")

    monkeypatch.setattr(sockets_module.socket, "getaddrinfo", slow)
    name = Address("slow.test", 9092)
    for _ in range(5):
        with pytest.raises(ConnectionRefused, match="its name is not resolved in time"):
            resolved(name, 0.05)
    assert calls == ["slow.test"]
    go_on.set()
    assert [str(place) for place in resolved(name, 5)] == ["127.0.0.7"]
    assert calls == ["slow.test"]


def test_what_was_resolved_stands_in_while_the_resolver_is_silent_or_fails_for_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter((found("127.0.0.7"), socket.gaierror(socket.EAI_AGAIN, "for now"), socket.gaierror(-2, "no name")))

    def answer(*_: Any, **__: Any) -> list[Any]:
        one = next(answers)
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(sockets_module.socket, "getaddrinfo", answer)
    name = Address("known.test", 9092)
    assert [str(place) for _ in range(2) for place in resolved(name, 5)] == ["127.0.0.7"] * 2
    with pytest.raises(ConnectionRefused, match="cannot be reached: no name"):  # it is gone, and that is said
        resolved(name, 5)
    monkeypatch.setattr(sockets_module.socket, "getaddrinfo", lambda *_, **__: time.sleep(2) or [])
    monkeypatch.setattr(sockets_module, "_IMPATIENT_SECONDS", 0.05)
    assert [str(place) for place in resolved(name, 5)] == ["127.0.0.7"]


class Sessions:
    """The server's side of logins whose sessions end: each handshake begins another login (KIP-368)."""

    def __init__(self, quorum: Any, make: Callable[[], Any], millis: int = 60_000) -> None:
        self.logins = 0
        self.is_renewed, self.is_over = True, False
        quorum.login = lambda: _Side(self, make, millis)


class _Side:
    def __init__(self, sessions: Sessions, make: Callable[[], Any], millis: int) -> None:
        self._sessions, self._make, self._millis = sessions, make, millis
        self._side = make()

    @property
    def is_done(self) -> bool:
        return self._side.is_done and not self._sessions.is_over

    def answer(self, request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            if self._side.is_done and not self._sessions.is_renewed:
                raise ConnectionError
            self._side = self._make()
        answer = self._side.answer(request)
        if isinstance(request, SaslAuthenticateRequest) and self._side.is_done:
            self._sessions.logins += 1
            self._sessions.is_over = False
            answer.session_lifetime_ms = self._millis
        return answer


MECHANISMS = {
    "PLAIN": (logins.Server, {**logins.LOGIN, "sasl.mechanism": "PLAIN"}),
    "SCRAM-SHA-256": (logins.Server, {**logins.LOGIN, "sasl.mechanism": "SCRAM-SHA-256"}),
    "SCRAM-SHA-512": (logins.Server, {**logins.LOGIN, "sasl.mechanism": "SCRAM-SHA-512"}),
    "OAUTHBEARER": (logins.TokenServer, {**logins.TOKENS, COMMAND: "echo abc"}),
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("is_renewed", [True, False])
def test_a_session_that_ends_is_renewed_or_opened_again_without_an_error(
    quorum: Any, address: Address, mechanism: str, *, is_renewed: bool
) -> None:
    quorum.versions = {36: 1}
    make, client = MECHANISMS[mechanism]
    sessions, peers = Sessions(quorum, make), Peers()
    sessions.is_renewed = is_renewed
    connection = dialer(from_client(client), peers)(address, response_seconds=5)
    for is_over in (False, False, True):  # also when it is over, before anything else is asked
        assert 40 < connection._session.renewed_at - time.monotonic() < 60
        assert cluster_of(connection) == CLUSTER_ID
        connection._session = Session(0.0, time.monotonic() + (0 if is_over else 60))
        sessions.is_over = is_over
        assert cluster_of(connection) == CLUSTER_ID
    assert sessions.logins == 4
    assert peers.at(address).errors == 0
    assert len(quorum.nodes[1]._open) == (1 if is_renewed else 4)


def test_a_session_shorter_than_brokers_let_it_be_renewed_is_opened_again(quorum: Any, address: Address) -> None:
    make, client = MECHANISMS["PLAIN"]
    sessions = Sessions(quorum, make, millis=100)
    connection = Connection(address, from_client(client))
    time.sleep(0.15)
    assert cluster_of(connection) == CLUSTER_ID
    assert (sessions.logins, len(quorum.nodes[1]._open)) == (2, 2)


def test_a_login_that_is_refused_when_it_is_renewed_is_refused(quorum: Any, address: Address) -> None:
    make, client = MECHANISMS["PLAIN"]
    Sessions(quorum, make, millis=100)
    connection = Connection(address, from_client(client))
    quorum.login = logins.TokenServer  # takes no password
    connection._session = Session(0.0, 0.0, is_too_short=True)
    with pytest.raises(ServiceRefused, match="refuses the login of 'reader': invalid_token"):
        cluster_of(connection)


def test_without_a_new_token_the_session_is_used_to_its_end(quorum: Any, address: Address, tmp_path: Path) -> None:
    token = tmp_path / "token"
    content = '{"access_token": "abc", "expires_in": 0.01}'
    token.write_text(content)
    sessions = Sessions(quorum, logins.TokenServer)
    security = from_client({**logins.TOKENS, COMMAND: f"cat {token}"})
    connection = Connection(address, security)
    token.unlink()
    assert security.tokens is not None
    security.tokens._renewed_at = 0.0  # the last one has ended
    connection._session = Session(0.0, time.monotonic() + 60)
    assert cluster_of(connection) == CLUSTER_ID  # nothing to renew it with, and it still holds
    token.write_text(content)
    connection._session = connection._session._replace(renewed_at=0.0)
    assert cluster_of(connection) == CLUSTER_ID
    assert sessions.logins == 2
    token.unlink()
    security.tokens._renewed_at = 0.0
    connection._session = Session(0.0, 0.0)
    with pytest.raises(ConnectionRefused, match=r"the token command .* ended with 1"):
        cluster_of(connection)


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


def throttled(quorum: Any, millis: int) -> None:
    node = quorum.nodes[1]
    answer = node.answer_MetadataRequest

    def with_throttle(request: Any) -> Any:
        made = answer(request)
        made.throttle_time_ms = millis
        return made

    node.answer_MetadataRequest = with_throttle


def test_the_time_that_a_quota_takes_is_counted_and_muting_is_known(quorum: Any, address: Address) -> None:
    peers = Peers()
    throttled(quorum, 700)
    connection = dialer(Security(), peers)(address, response_seconds=5)
    assert connection.muted_until == 0
    cluster_of(connection)
    cluster_of(connection)
    assert peers.at(address).throttled_ms == 1_400
    assert 0.5 < connection.muted_until - time.monotonic() <= 0.7


def test_a_response_is_waited_for_beyond_the_time_that_a_quota_takes(quorum: Any, address: Address) -> None:
    throttled(quorum, 600)
    connection = Connection(address, Security(), response_seconds=0.3)
    cluster_of(connection)
    late = quorum.nodes[1].answer_MetadataRequest
    quorum.nodes[1].answer_MetadataRequest = lambda one: (time.sleep(0.6), late(one))[1]  # muted
    assert cluster_of(connection) == CLUSTER_ID


def test_a_request_whose_versions_are_all_newer_than_ours_is_not_supported(quorum: Any, address: Address) -> None:
    node = quorum.nodes[1]
    answer = node.answer_ApiVersionsRequest

    def raised(request: Any) -> Any:
        made = answer(request)
        for each in made.api_keys:
            each.min_version, each.max_version = (30, 40) if each.api_key == 1 else (each.min_version, each.max_version)
        return made

    node.answer_ApiVersionsRequest = raised
    connection = Connection(address, Security())
    assert connection.newest(1, 18) == -1
    with pytest.raises(ServiceRefused, match="supports Fetch from version 30 on, and isrwatch up to 18: upgrade isrw"):
        connection.newest(1, 18, "Fetch")
    with pytest.raises(ServiceRefused, match="does not support Produce"):
        connection.required(0, 9, "Produce")
    assert connection.newest(1, 35) == 35
    assert connection.newest(3, 12) == 12


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_thread_waits_for_the_resolver_of_a_literal_address(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a thread was started")

    monkeypatch.setattr(sockets_module.threading, "Thread", refused)
    assert [str(place) for place in resolved(Address(host, 9092), 1)] == [host]


NEWER, NONE = dict.fromkeys(range(100), (90, 99)), dict[int, tuple[int, int]]()
QUESTIONS: dict[str, Callable[[Connection], object]] = {
    "DescribeConfigs": lambda it: connection_module.describe_configs(it, connection_module.Resource.BROKER, ["1"], []),
    "ListOffsets": lambda it: list_offsets(it, HIGH_WATERMARK, {}),
    "response time": response_micros,
    "DescribeLogDirs": describe_directories,
    "DescribeQuorum": describe_quorum,
    "groups": list_groups,
    "descriptions of groups": lambda it: describe_groups(it, {"g": DescribedGroup("classic", "")}),
    "transactions": open_transactions,
    "producers": lambda it: describe_producers(it, {"t": [0]}),
    "features": describe_features,
    "reassignments": lambda it: listed(it, 1.0),
    "cluster": _cluster_id,
    "brokers": _brokers,
    "leader": lambda it: _quorum(it, "", ANYBODY),
    "KRaft snapshot": lambda it: messages.fetch(it, cluster_id="c", leader_epoch=1, snapshot=LogEnd(1, 1)),
    "view": lambda it: ConnectedBrokers(lambda *_, **__: it, cluster="c", seconds=1).view(it),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("versions", [NEWER, NONE], ids=["newer", "none"])
def test_a_node_that_supports_only_newer_versions_or_none_is_refused_or_has_nothing(
    address: Address, question: str, versions: dict[int, tuple[int, int]]
) -> None:
    """No other error: that would end the program, and with it what other nodes answer."""
    connection = Connection(address, Security())
    connection._versions = versions
    with suppress(ServiceRefused):
        QUESTIONS[question](connection)
