"""Connections that fail here or by TLS, and not because a node is gone: which side is to blame, and what to do."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeResponse

from streaming.commands.collect import raise_file_limit
from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.errors import ConnectionRefused
from streaming.sources.collector.listener_watch import ListenerWatch
from streaming.sources.collector.listeners import Listener, NotAsked, ask_all
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.tail import Tail
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met
from streaming.sources.polling.view import ClusterView
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol import connection
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import Connection, ServiceRefused, dialer
from streaming.sources.protocol.identity import Role
from streaming.sources.protocol.security import Security, from_client, without_login
from streaming.sources.protocol.sockets import Failure, NoAnswer
from streaming.sources.protocol.tls import distrust
from tests.sources.metadata_log.test_certificates import Listening
from tests.sources.metadata_log.test_connection import LOGIN, Server, ask
from tests.sources.metadata_log.test_listeners import Authority, exposition, settings_for, trusting

NOT_YET_VALID = 9  # X509_V_ERR_CERT_NOT_YET_VALID


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def served() -> Iterator[Callable[[ssl.SSLContext], Listening]]:
    made: list[Listening] = []

    def serve(context: ssl.SSLContext) -> Listening:
        made.append(Listening(context))
        return made[-1]

    yield serve
    for each in made:
        each.listening.close()


Serving = Callable[[ssl.SSLContext], Listening]


def refusal_at(address: Address, client: dict[str, str]) -> NoAnswer:
    with pytest.raises(NoAnswer) as refusal:
        Connection(address, from_client(client))
    return refusal.value


def test_a_certificate_that_is_not_accepted_here_is_not_called_a_refusal_of_the_node(
    authority: Authority, served: Serving
) -> None:
    own, ended = authority.issue("own", 3), authority.issue("ended", -1)
    listener = served(authority.served(own))
    other_name = Address("localhost", listener.address.port)
    for address, client, sentence in (
        (
            listener.address,
            {"security.protocol": "SSL"},
            "is not trusted here (self-signed certificate): check the ssl",
        ),
        (
            other_name,
            trusting(own),
            "is not for this name (Hostname mismatch, certificate is not valid for 'localhost')",
        ),
        (served(authority.served(ended)).address, trusting(ended), "has ended, itself or one that signs it: renew it"),
    ):
        refusal = refusal_at(address, client)
        assert f"{address} shows a certificate that {sentence}" in str(refusal)
        assert refusal.how is Failure.UNFIT
    early = ssl.SSLCertVerificationError()
    early.verify_code = NOT_YET_VALID
    assert "is not valid yet, itself or one that signs it: set the clock here by NTP" in distrust(
        early, "cluster.client"
    )


@pytest.mark.parametrize("ours", ["none", "foreign"])
def test_a_node_that_wants_a_certificate_from_now_on_says_so_and_is_not_gone(
    authority: Authority, served: Serving, ours: str
) -> None:
    own, foreign = authority.issue("own", 3), authority.issue("foreign", 3)
    context = authority.served(own)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(own)
    keys = {"ssl.certificate.location": str(foreign), "ssl.key.location": str(foreign.with_suffix(".key"))}
    refusal = refusal_at(served(context).address, trusting(own) | (keys if ours == "foreign" else {}))
    wants = "wants a certificate of its clients (certificate required): set ssl.certificate.location and ssl.key.locat"
    assert (wants if ours == "none" else "does not accept our certificate (unknown ca): renew it, or") in str(refusal)
    assert refusal.how is Failure.UNFIT


def test_a_broker_with_which_tls_fails_is_neither_gone_nor_asked_ten_times_a_second(
    authority: Authority, served: Serving
) -> None:
    listener = served(authority.served(authority.issue("own", 3)))
    watch = Watch(dialer(from_client({"security.protocol": "SSL"})), name="test")
    at = (listener.address.host, listener.address.port)
    watch.look_at(ClusterView(cluster_id=ClusterId("c"), answered_by=1, brokers={BrokerId(1): at}, topics={}))
    question, mets, until = BrokerQuestion(Ask.PRESENCE, BrokerId(1)), list[Met](), time.monotonic() + 0.7
    while time.monotonic() < until:
        watch.ask([question])
        time.sleep(0.05)
        mets += watch.take()
    watch.close()
    assert {each.how for each in mets} == {Meeting.WRONG_NODE}
    assert listener.connections == 1


def test_controllers_with_which_tls_fails_are_asked_once_in_a_while_by_the_tail(
    authority: Authority, served: Serving
) -> None:
    controllers = {node: served(authority.served(authority.issue("own", 3))) for node in (101, 102)}
    at = ControllerAddresses(by_node={node: each.address for node, each in controllers.items()})
    broker = served(authority.served(authority.issue("own", 3)))
    dial, refused = dialer(from_client({"security.protocol": "SSL"})), set[str]()
    tail = Tail(Bootstrap((broker.address,), dial, at), dial, cluster_id=ClusterId("c"), pause=lambda _: None)
    for _ in range(20):
        try:
            tail.poll()
        except ConnectionRefused as refusal:
            refused.add(str(refusal))
    assert [each.connections for each in (*controllers.values(), broker)] == [1, 1, 1]
    (sentence,) = refused
    assert "is not trusted here" in sentence


def test_who_does_not_let_us_in_is_asked_again_after_a_while_and_at_once_with_other_keys(
    authority: Authority, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = authority.issue("own", 3)
    listener = served(authority.served(own))
    dial, other = dialer(from_client({"security.protocol": "SSL"})), dialer(without_login(trusting(own)))

    def is_refused() -> bool:
        with suppress(NoAnswer):
            return bool(dial(listener.address, response_seconds=1.0))
        return True

    assert is_refused()
    with pytest.raises(ConnectionRefused):  # it speaks TLS, and then no Kafka
        other(listener.address, response_seconds=0.1)
    assert is_refused()
    assert listener.connections == 2
    monkeypatch.setattr(connection, "time", SimpleNamespace(**vars(time) | {"monotonic": lambda: time.monotonic() + 6}))
    assert is_refused()
    assert listener.connections == 3


@contextmanager
def no_file_left(but: int = 0) -> Iterator[None]:
    """Let this process open no more files."""
    before, opened = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[0]), before[1]))
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(but):
            os.close(opened.pop())
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_machine_without_files_left_blames_no_node(quorum: Any, host: str) -> None:
    address = Address(host, quorum.nodes[1].port)
    refusal: ConnectionRefused | None = None
    with no_file_left():
        try:
            Connection(address, Security())
        except ConnectionRefused as error:
            refusal = error
    assert isinstance(refusal, NoAnswer)
    assert "this machine cannot connect: Too many open files: raise the limit of open files (ulimit -n)" in str(refusal)
    assert refusal.how is Failure.LOCAL


def test_a_collector_opens_as_many_files_as_it_may() -> None:
    """As Java's programs do: a shell gives a program 1,024, of which each broker takes several."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(65_536, before[1]), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_listener_that_could_not_be_asked_is_neither_up_nor_down(quorum: Any) -> None:
    listener = Listener(Role.BROKER, "1", Address("127.0.0.1", quorum.nodes[1].port))
    lines: list[str] = []

    def unconnected(address: Address, *, response_seconds: float) -> Connection:  # noqa: ARG001 - the signature of Dial
        raise NoAnswer(f"{address} cannot be reached: this machine cannot connect", Failure.LOCAL)

    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, listed=lambda: [listener])
    watch.answers = ask_all([listener], {Role.BROKER: unconnected})
    assert "listener_up{" not in exposition(watch)
    watch.round()
    assert lines == [f"broker 1 at {listener.address} responds again"]
    assert "listener_up{" in exposition(watch)


def test_keys_that_cannot_be_written_for_openssl_are_one_sentence(
    quorum: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = authority.issue("own", 3)
    key = own.with_suffix(".key").read_text()
    client = {**trusting(own), "ssl.certificate.pem": own.read_text(), "ssl.key.pem": key}
    security = from_client(client)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    sentence = (
        r"OpenSSL reads them from a file for a moment, and none can be written: .*full.*: No such file or directory"
    )
    address = Address("127.0.0.1", quorum.nodes[1].port)
    with pytest.raises(ServiceRefused, match=sentence):
        Connection(address, security)
    listener = Listener(Role.BROKER, "1", address)
    (reason,) = ask_all([listener], {Role.BROKER: dialer(security)}).values()
    assert isinstance(reason, NotAsked), "whether it responds is unknown"


class WithoutLogin:
    """A listener without logins, to which a login is sent."""

    is_done = False

    def answer(self, _: Any) -> Any:
        return SaslHandshakeResponse(error_code=34, mechanisms=[])  # as KafkaApis.handleSaslHandshakeRequest


def test_a_login_that_is_not_asked_for_is_named_as_one(quorum: Any, address: Address) -> None:
    quorum.login = WithoutLogin
    with pytest.raises(ServiceRefused, match=r"asks for no login: set cluster.client security.protocol to PLAINTEXT"):
        Connection(address, from_client({**LOGIN, "sasl.mechanism": "PLAIN"}))


def test_a_connection_that_is_closed_before_an_answer_says_what_to_check(quorum: Any, address: Address) -> None:
    quorum.login = Server
    with pytest.raises(ConnectionRefused, match=r"if it asks for a login, set security\.protocol and sasl\.mechanism"):
        ask(Connection(address, Security()))
    with socket.create_server(("127.0.0.1", 0)) as full:

        def hang_up() -> None:
            full.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ConnectionRefused, match=r"how many connections it allows \(max\.connections\.per\.ip, max"):
            Connection(Address("127.0.0.1", full.getsockname()[1]), Security())
