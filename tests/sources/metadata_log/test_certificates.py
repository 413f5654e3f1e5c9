"""Certificates of all listeners: whole chains, of listeners that isrwatch does not use, and what it cannot see."""

from __future__ import annotations

import datetime as dt
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import EXPIRED_CERTIFICATE
from streaming.contracts.records import EndPoint, RegisterBroker, RegisterController
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector import certificates, listener_watch
from streaming.sources.collector.certificates import NO_RESTART, SecuredListener, hello, registered, secured
from streaming.sources.collector.listener_watch import ListenerWatch
from streaming.sources.collector.listeners import Role
from streaming.sources.metadata_log.image_state import MetadataState, state_document, state_from_document
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import Dialer
from streaming.sources.protocol.security import from_client, without_login
from streaming.sources.protocol.tls import Tls
from tests.sources.metadata_log.conftest import FRAMES
from tests.sources.metadata_log.test_listeners import exposition, settings_for

DAY = 86_400


class Made(NamedTuple):
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def made(
    name: str, days: int, *, by: Made | None = None, key: ec.EllipticCurvePrivateKey | None = None, ids: bool = True
) -> Made:
    """Make a certificate that one signed, or it itself; with a key that there is, it is renewed or cross-signed."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    signer, now = by.key if by else key, dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(by.certificate.subject if by else subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(500 if days < 0 else 0))
        .not_valid_after(now + dt.timedelta(days))
        .add_extension(x509.BasicConstraints(ca=name != "leaf", path_length=None), critical=True)
    )
    if ids:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        of_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(of_signer, critical=False)
    return Made(builder.sign(signer, hashes.SHA256()), key)


class Chain:
    """A leaf, an intermediate authority and a root, each with its own days."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def issue(self, *, leaf: int, between: int = 300, root: int = 300) -> ssl.SSLContext:
        top = made("root", root)
        middle = made("between", between, by=top)
        (self.folder / "root.pem").write_text(top.pem)
        return self.served(made("leaf", leaf, by=middle), middle, top)

    def served(self, *certificates: Made) -> ssl.SSLContext:
        chain, private = self.folder / "chain.pem", serialization.PrivateFormat.PKCS8
        key = certificates[0].key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
        chain.write_text(key.decode() + "".join(each.pem for each in certificates))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context


class Listening:
    """A listener with TLS and nothing behind it, as one of brokers or controllers is for a stranger."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context, self.connections = context, 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self.listening.accept()
                self.connections += 1
                with suppress(OSError), plain:
                    if self.context is not None:
                        self.context.wrap_socket(plain, server_side=True).recv(1)
                    else:
                        plain.recv(1)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(held: ExitStack, context: ssl.SSLContext | None) -> Listening:
    made = Listening(context)
    held.callback(made.listening.close)
    return made


def days(ends_at: float | None) -> int:
    assert ends_at is not None
    return round((ends_at - time.time()) / DAY)


@pytest.mark.parametrize("shortest", ["leaf", "between", "root"])
def test_of_a_chain_the_first_to_end_counts(chain: Chain, held: ExitStack, shortest: str) -> None:
    context = chain.issue(**({"leaf": 300} | {shortest: 5}))
    assert days(hello(listening(held, context).address).ends_at) == 5


def test_a_certificate_that_is_not_of_the_path_to_an_authority_may_have_ended(chain: Chain, held: ExitStack) -> None:
    """An authority whose key an older one had signed, as servers go on to send for years; whose end no client sees."""
    old, new = made("old", -400), made("new", 300)
    leaf, crossed = made("leaf", 60, by=new), made("new", -40, by=old, key=new.key)
    for extra in ((old,), (crossed, new), (crossed, old, new), (new, crossed, old)):
        shown = hello(listening(held, chain.served(leaf, *extra)).address)
        assert days(shown.ends_at) == 60, extra
    (chain.folder / "ca.pem").write_text(new.pem)
    client = {"security.protocol": "SSL", "ssl.ca.location": str(chain.folder / "ca.pem")}
    one = listening(held, chain.served(leaf, crossed, old))  # the authority itself is only at clients
    listener = SecuredListener(Role.BROKER, "3", "REPLICATION", one.address)
    assert days(certificates.look_at([listener], client)[listener].ends_at) == 60
    for security in (from_client(client | {"ssl.endpoint.identification.algorithm": "none"}), without_login(client)):
        peers = Peers()
        with suppress(ConnectionRefused):
            Dialer(security, peers)(one.address, response_seconds=0.1)
        assert days(peers.at(one.address).certificate_expires_at) == 60


def test_a_certificate_that_the_path_needs_counts_although_another_one_of_that_name_holds(
    chain: Chain, held: ExitStack
) -> None:
    other, old = made("one", 300), made("one", -40)  # of another key
    leaf = made("leaf", 60, by=old)
    assert days(hello(listening(held, chain.served(leaf, other, old)).address).ends_at) == -40
    (chain.folder / "ca.pem").write_text(old.pem)
    client = {"security.protocol": "SSL", "ssl.ca.location": str(chain.folder / "ca.pem")}
    listener = SecuredListener(Role.BROKER, "3", "A", listening(held, chain.served(leaf, other)).address)
    assert days(certificates.look_at([listener], client)[listener].ends_at) == -40


def test_two_authorities_that_signed_each_other_without_key_ids_end_the_search(chain: Chain, held: ExitStack) -> None:
    a, b = made("a", 300), made("b", 200)
    crossed = made("a", 100, by=b, key=a.key, ids=False), made("b", 90, by=a, key=b.key, ids=False)
    assert (
        days(hello(listening(held, chain.served(made("leaf", 250, by=a, ids=False), *crossed)).address).ends_at) == 90
    )


def test_of_our_own_certificate_only_what_signs_it_counts() -> None:
    old, new = made("old", -400), made("new", 300)
    own = made("leaf", 60, by=new).pem + made("new", -40, by=old, key=new.key).pem + new.pem + old.pem
    assert days(Tls({"ssl.certificate.pem": own}, "t").expiries()["ssl.certificate.pem"]) == 60


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_that_wants_a_certificate_of_ours_has_shown_its_own(
    chain: Chain, held: ExitStack, newest: ssl.TLSVersion
) -> None:
    context = chain.issue(leaf=7)
    context.maximum_version, context.verify_mode = newest, ssl.CERT_REQUIRED
    context.load_verify_locations(chain.folder / "root.pem")
    shown = hello(listening(held, context).address)
    assert (days(shown.ends_at), shown.why_unseen) == (7, "")


def test_what_shows_no_certificate_is_unseen_with_its_reason(held: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "SECONDS", 0.2)
    plain = listening(held, None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address, reason in (
            (plain.address, "ends the TLS handshake"),
            (Address("127.0.0.1", silent.getsockname()[1]), "silent in the TLS handshake"),
            (Address("127.0.0.1", 1), "Connection refused"),
            (Address("a" * 70 + ".test", 1), "cannot be reached"),
        ):
            shown = hello(address)
            assert shown.ends_at is None
            assert reason in shown.why_unseen


def at(listener: Listening, name: str, protocol: int = 1) -> EndPoint:
    return EndPoint(name, listener.address.host, listener.address.port, protocol)


def test_the_listeners_of_the_log_are_watched_with_name_and_node_and_one_that_is_unreachable_is_unseen(
    quorum: Any, chain: Chain, held: ExitStack
) -> None:
    """Also that of controllers, and the inter-broker one, although isrwatch connects to others, in plain text."""
    soon = listening(held, chain.issue(leaf=2))
    later = listening(held, chain.issue(leaf=100))
    points = {
        ("broker", 3): (EndPoint("CLIENT", "127.0.0.1", 1, 0), at(soon, "REPLICATION")),
        ("broker", 4): (EndPoint("REPLICATION", "127.0.0.1", 1, 3),),
        ("controller", 101): (at(later, "CONTROLLER", 3),),
    }
    lines: list[str] = []
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, end_points=lambda: points)
    watch.round()
    series = [line for line in exposition(watch).splitlines() if line.startswith("isrwatch_collector_listener_cert")]
    ends = {
        line.partition("{")[2].rpartition("}")[0]: float(line.rpartition(" ")[2]) for line in series if "exp" in line
    }
    assert {labels: days(end) for labels, end in ends.items()} == {
        f'address="{soon.address}",cluster="prod",listener="REPLICATION",node="3",role="broker"': 2,
        f'address="{later.address}",cluster="prod",listener="CONTROLLER",node="101",role="controller"': 100,
    }
    unseen = [line for line in series if "unseen" in line and line.endswith(" 1.0")]
    assert len(unseen) == 1
    assert 'node="4"' in unseen[0]
    (line,) = lines
    assert line.startswith("the certificate of listener REPLICATION of broker 4 at 127.0.0.1:1 is unseen, and until w")
    watch.round()
    assert lines == [line]


def test_a_controller_that_was_removed_from_the_quorum_has_no_certificate_that_ends(
    quorum: Any, chain: Chain, held: ExitStack
) -> None:
    """Its registration stays in the log, of Kafka before 4.4; while it is a member it is unseen."""
    one, lines = listening(held, chain.issue(leaf=-1)), list[str]()
    points = {("controller", 102): (at(one, "CONTROLLER"),)}
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, end_points=lambda: points)
    watch.round()
    assert len(watch.certificates.shown) == len(lines) == 1
    one.listening.shutdown(socket.SHUT_RDWR)
    one.listening.close()
    quorum.voters, quorum.observers = {1: 0, 102: 0}, {}
    watch.round()
    assert watch.certificates.ended is not None
    quorum.voters = {1: 0}
    watch.round()
    assert (watch.certificates.shown, watch.certificates.ended) == ({}, None)
    assert len(lines) == 1


def test_the_end_is_reported_once_with_the_advice_and_a_renewed_one_ends_it(
    quorum: Any, chain: Chain, held: ExitStack
) -> None:
    one = listening(held, chain.issue(leaf=-1))
    lines: list[str] = []
    points = {("broker", 3): (at(one, "REPLICATION"),)}
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, end_points=lambda: points)
    watch.round()
    watch.round()
    (line,) = lines
    assert f"listener REPLICATION of broker 3 at {one.address} ended on " in line
    assert line.endswith(NO_RESTART)
    one.context = chain.issue(leaf=90)
    watch.round()
    assert lines[1:] == [f"listener REPLICATION of broker 3 at {one.address} shows a certificate that holds"]
    one.listening.shutdown(socket.SHUT_RDWR)
    one.listening.close()
    watch.round()
    assert len(lines) == 2  # of a node that restarts, what it showed last


def test_of_a_node_that_was_down_when_its_certificate_ended_it_is_not_known_whether_it_was_renewed(
    quorum: Any, chain: Chain, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, now, lines = listening(held, chain.issue(leaf=20)), time.time, list[str]()
    points = {("broker", 3): (at(one, "REPLICATION"),)}
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, end_points=lambda: points)
    watch.round()
    one.listening.shutdown(socket.SHUT_RDWR)
    one.listening.close()
    watch.certificates.settled_until.clear()
    watch.round()
    assert (watch.certificates.ended, lines) == (None, [])
    monkeypatch.setattr(certificates, "time", SimpleNamespace(**vars(time) | {"time": lambda: now() + 30 * DAY}))
    watch.round()
    watch.round()
    assert watch.certificates.ended is None
    (line,) = lines
    assert line.startswith(f"the certificate of listener REPLICATION of broker 3 at {one.address} is unseen, and until")


def test_a_certificate_that_does_not_hold_yet_is_not_taken_for_fine(
    quorum: Any, chain: Chain, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, now = listening(held, chain.issue(leaf=90)), time.time
    points = {("broker", 3): (at(one, "REPLICATION"),)}
    lines: list[str] = []
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, end_points=lambda: points)
    monkeypatch.setattr(certificates, "time", SimpleNamespace(**vars(time) | {"time": lambda: now() - DAY}))
    watch.round()
    watch.round()
    (line,) = lines
    assert f"the certificate of listener REPLICATION of broker 3 at {one.address} holds only from 2" in line
    monkeypatch.setattr(certificates, "configured", lambda *_, **__: certificates.Configured(points, {}))
    problems = [said for status, said in CHECKS["listeners"](settings_for(quorum)) if status is Status.PROBLEM]
    assert problems == [line]
    monkeypatch.undo()
    watch.round()
    assert lines[1:] == [f"listener REPLICATION of broker 3 at {one.address} shows a certificate that holds"]


def test_a_listener_whose_certificate_holds_for_long_is_looked_at_seldom_and_others_each_round(
    quorum: Any, chain: Chain, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    hello_now = certificates.hello
    monkeypatch.setattr(
        certificates, "hello", lambda address, *context: (looked.append(str(address)), hello_now(address, *context))[1]
    )
    long, soon = listening(held, chain.issue(leaf=300)), listening(held, chain.issue(leaf=1))
    points = {("broker", 3): (at(long, "A"), at(soon, "B"), EndPoint("C", "127.0.0.1", 1, 1))}
    watch = ListenerWatch(settings_for(quorum), Peers(), report=print, end_points=lambda: points)
    for _ in range(3):
        watch.round()
    assert [looked.count(str(each)) for each in (long.address, soon.address, "127.0.0.1:1")] == [1, 3, 3]
    assert len(watch.certificates.shown) == 3
    monkeypatch.setattr(certificates, "SELDOM_SECONDS", 0.0)
    watch.certificates.settled_until.clear()
    watch.round()
    watch.round()
    assert looked.count(str(long.address)) == 3


def test_that_a_certificate_has_ended_is_observed_once_and_that_it_is_renewed(
    quorum: Any, chain: Chain, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_watch, "WAIT_SECONDS", 0.01)
    one = listening(held, chain.issue(leaf=-1))
    points = {("broker", 3): (at(one, "REPLICATION"), at(one, "ALSO"))}
    ids: list[Any] = [None]
    watch = ListenerWatch(
        settings_for(quorum), Peers(), report=print, end_points=lambda: points, cluster_id=lambda: ids[0]
    )

    def observed() -> list[str | None]:
        seen = [*watch.poll(Micros(5)), *watch.poll(Micros(6))]
        assert all((each.key, each.topic) == (EXPIRED_CERTIFICATE, "") for each in seen)
        return [each.value for each in seen]

    assert observed() == []
    watch.round()
    assert observed() == []  # of which cluster is not known yet
    ids[0] = "c1"
    assert observed() == [f"listener ALSO of broker 3 at {one.address} and 1 more"]
    watch.report_due.expire()
    assert len(observed()) == 1  # again, and again: it has not stopped
    one.context = chain.issue(leaf=5)
    watch.round()
    assert observed() == [None]
    assert observed() == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {
                "advertised.listeners": "CLIENT://h:1,REPLICATION://h:2,IN://[::1]:3",
                "listener.security.protocol.map": "CONTROLLER:SSL,CLIENT:PLAINTEXT,REPLICATION:SSL,IN:SASL_SSL",
            },
            [("REPLICATION", "h", 2), ("IN", "::1", 3)],
        ),
        (
            {
                "advertised.listeners": "",
                "listeners": "SSL://h:1,CONTROLLER://h:2,SASL_SSL://:3",  # the last without a host
                "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL,SASL_SSL:SASL_SSL",
                "controller.listener.names": "CONTROLLER",
            },
            [("SSL", "h", 1)],
        ),
        ({"advertised.listeners": "SSL://h:1"}, [("SSL", "h", 1)]),  # names that are protocols
        ({}, []),
    ],
)
def test_the_listeners_of_a_configuration(values: dict[str, str], expected: list[tuple[str, str, int]]) -> None:
    found = secured({("broker", 1): registered(values)})
    assert [(one.name, one.address.host, one.address.port) for one in found] == expected


def test_end_points_survive_a_checkpoint() -> None:
    state = MetadataState()
    points = (EndPoint("A", "h", 1, 0), EndPoint("B", "h", 2, 1))
    state.apply(RegisterBroker(broker=1, broker_epoch=2, incarnation_id="i", end_points=points))
    state.apply(RegisterController(controller=101, incarnation_id="i", end_points=points[1:]))
    again = state_from_document(json.loads(json.dumps(state_document(state))))
    assert again.brokers == state.brokers
    assert again.controller_end_points == {101: points[1:]}


def test_doctor_names_the_listener_that_ends_and_what_not_to_do(
    quorum: Any, chain: Chain, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = listening(held, chain.issue(leaf=-1))
    points = {("broker", 3): (at(ended, "REPLICATION"), EndPoint("OTHER", "127.0.0.1", 1, 1))}
    monkeypatch.setattr(certificates, "configured", lambda *_, **__: certificates.Configured(points, {4: "denied"}))
    findings = list(CHECKS["listeners"](settings_for(quorum)))
    problems = [sentence for status, sentence in findings if status is Status.PROBLEM]
    (problem,) = problems
    assert problem.startswith(f"the certificate of listener REPLICATION of broker 3 at {ended.address} expired on ")
    assert problem.endswith(NO_RESTART)
    warnings = [sentence for status, sentence in findings if status is Status.WARNING]
    assert any("listener OTHER of broker 3 at 127.0.0.1:1 is unseen" in each for each in warnings)
    assert any(each.endswith("of broker 4 that others use: denied") for each in warnings)


def test_brokers_that_may_not_be_asked_for_their_listeners_are_named_and_not_taken_for_fine(quorum: Any) -> None:
    """The stand-in has no DescribeConfigs at all."""
    quorum.brokers = {7: quorum.nodes[1].port}
    settings = Settings(
        cluster=ClusterSettings(name="prod", bootstrap_servers=quorum.addresses()), collect=CollectSettings()
    )
    found = certificates.configured(settings)
    assert found.end_points == {}
    assert "does not support DescribeConfigs" in found.unknown[7]


@pytest.mark.parametrize("primary_source", ["auto", "poll"])
def test_doctor_takes_listeners_from_the_log_that_brokers_do_not_say_if_the_collector_would(
    quorum: Any, primary_source: Any
) -> None:
    """The stand-in has no DescribeConfigs at all, and its log has the registrations of brokers 1 to 3."""
    quorum.append(*FRAMES)
    quorum.brokers = {1: quorum.nodes[1].port}
    settings = settings_for(quorum)
    settings = replace(settings, collect=replace(settings.collect, primary_source=primary_source))
    unseen = [sentence for _, sentence in CHECKS["listeners"](settings) if "of broker 1 that others use" in sentence]
    assert bool(unseen) is (primary_source == "poll")


def test_a_secured_listener_is_named_as_people_know_it() -> None:
    one = SecuredListener(Role.BROKER, "3", "REPLICATION", Address("h", 1))
    assert str(one) == "listener REPLICATION of broker 3 at h:1"
