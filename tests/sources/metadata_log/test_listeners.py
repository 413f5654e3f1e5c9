"""Listeners of brokers and controllers over real sockets: who responds, and until when each certificate is valid."""

from __future__ import annotations

import calendar
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import Micros
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources.collector import listener_watch, listeners
from streaming.sources.collector.listener_watch import ListenerWatch, ThrottleWatch
from streaming.sources.collector.listeners import Listener, Role
from streaming.sources.protocol.addresses import MAX_PEERS, Address, Peers
from streaming.sources.protocol.certificate_chains import certificate_of, last_end
from streaming.sources.protocol.tls import Tls
from tests.sources.metadata_log.conftest import FIXTURES

DAY = 86_400


class Authority:
    """Certificates that sign themselves, and say when they end as openssl prints it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def issue(self, name: str, days: int) -> Path:
        pem, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subprocess.run([*new, "-keyout", key, "-out", pem, *subject], check=True, capture_output=True)
        again = ["openssl", "x509", "-in", pem, "-signkey", key, "-days", str(days), "-out", pem]
        subprocess.run(again, check=True, capture_output=True)  # this one takes days of the past
        return pem

    def end(self, pem: Path) -> float:
        said = subprocess.run(["openssl", "x509", "-enddate", "-noout", "-in", pem], check=True, capture_output=True)
        return calendar.timegm(time.strptime(said.stdout.decode().strip(), "notAfter=%b %d %H:%M:%S %Y GMT"))

    def served(self, pem: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, pem.with_suffix(".key"))
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_for(quorum: Any, client: dict[str, str] | None = None, **cluster: Any) -> Settings:
    of = ClusterSettings(name="prod", bootstrap_servers=quorum.addresses(), client=client or {}, **cluster)
    return Settings(cluster=of, collect=CollectSettings(config_interval=0.05))


def watched(settings: Settings, report: Callable[[str], None] = print, **listed: Any) -> ListenerWatch:
    """Give a watch after its first round."""
    watch = ListenerWatch(settings, Peers(), report=report, **listed)
    watch.round()
    return watch


def trusting(pem: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(pem)}


def exposition(watch: ListenerWatch) -> str:
    registry = CollectorRegistry()
    registry.register(watch.metrics)
    return generate_latest(registry).decode()


def samples(watch: ListenerWatch) -> dict[str, float]:
    """Scrape; each line of the response as series and value."""
    pairs = (line.rpartition(" ") for line in exposition(watch).splitlines() if not line.startswith("#"))
    values = {series.removeprefix("isrwatch_collector_"): float(value) for series, _, value in pairs}
    return {series: value for series, value in values.items() if not series.startswith("connection_")}


def test_the_exposition_of_connections_is_the_golden_one(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    shutil.copy(FIXTURES / "tls" / "certificate.pem", authorities)
    broker, combined = Address("broker-1", 9093), Address("broker-1", 9094)
    peers = Peers()
    peers.at(broker).certificate_expires_at = 2_000_000_000.0
    peers.at(broker).count(requests=3, sent_bytes=100, received_bytes=1_000)
    peers.at(combined).count(requests=4, sent_bytes=200, received_bytes=2_000, errors=1)
    peers.at(Address("balancer", 9092)).count(requests=1, sent_bytes=10, received_bytes=20)
    watch = ListenerWatch(Settings(cluster=ClusterSettings(name="prod", client=trusting(authorities))), peers)
    watch.answers = {Listener(Role.BROKER, "1", broker): "", Listener(Role.CONTROLLER, "1", combined): "it hangs"}
    golden("connections.prom", exposition(watch))


@pytest.mark.parametrize("days", [1, 400, 9_000, 30_000, 2_000_000])  # from 2050 on the time has another format
def test_the_end_of_a_certificate_is_what_openssl_says(authority: Authority, days: int) -> None:
    pem = authority.issue("a", days)
    assert last_end(f"text before\n{pem.read_text()}{pem.read_text()}") == authority.end(pem)


def element(tag: int, *content: bytes) -> bytes:
    return bytes([tag, sum(map(len, content))]) + b"".join(content)


@pytest.mark.parametrize(
    ("tag", "end", "year"), [(23, "491231", 2049), (23, "500101", 1950), (23, "991231", 1999), (24, "20500101", 2050)]
)
def test_two_digits_are_of_a_year_from_1950_on(tag: int, end: str, year: int) -> None:
    """RFC 5280, 4.1.2.5.1."""
    validity = element(0x30, element(23, b"490101000000Z"), element(tag, f"{end}000000Z".encode()))
    certificate = element(0x30, element(0x30, element(2, b"\1"), element(0x30), element(0x30), validity, element(0x30)))
    assert time.gmtime(certificate_of(certificate).validity.ends_at).tm_year == year


def test_a_certificate_that_is_cut_off_anywhere_is_none(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.issue("a", 9).read_text())
    for size in range(len(der)):
        with pytest.raises(ValueError, match="certificate"):
            certificate_of(der[:size])


def test_of_authorities_the_last_counts_and_of_our_own_chain_the_first(authority: Authority) -> None:
    old, new = authority.issue("old", 5), authority.issue("new", 500)
    both, folder = authority.folder / "both.pem", authority.folder / "authorities"
    both.write_text(old.read_text() + new.read_text())
    folder.mkdir()
    for pem in (old, new):
        shutil.copy(pem, folder)
    for client, end in (
        ({"ssl.ca.location": str(both)}, authority.end(new)),
        ({"ssl.ca.location": str(folder)}, authority.end(new)),
        ({"ssl.ca.pem": both.read_text()}, authority.end(new)),
        ({"ssl.certificate.location": str(both)}, authority.end(old)),
        ({"ssl.certificate.pem": both.read_text()}, authority.end(old)),
    ):
        assert list(Tls(client, "t").expiries().values()) == [end]
    for client in ({"ssl.ca.location": "probe"}, {"ssl.ca.location": "/nowhere"}, {"ssl.ca.pem": "being replaced"}, {}):
        assert Tls(client, "t").expiries() == {}


def test_each_listener_is_up_and_shows_its_certificate_and_a_renewed_one(quorum: Any, authority: Authority) -> None:
    first, renewed = authority.issue("first", 5), authority.issue("renewed", 500)
    both = authority.folder / "both.pem"
    both.write_text(first.read_text() + renewed.read_text())
    quorum.tls = authority.served(first)
    quorum.brokers = {7: quorum.nodes[2].port, 8: quorum.nodes[3].port}

    watch = watched(settings_for(quorum, trusting(both)))

    port = {node: f"127.0.0.1:{quorum.nodes[node].port}" for node in quorum.nodes}
    of = {
        f'cluster="prod",role="broker",node="7",address="{port[2]}"',
        f'cluster="prod",role="broker",node="8",address="{port[3]}"',
        f'cluster="prod",role="bootstrap",node="",address="{port[1]}"',
        *(f'cluster="prod",role="controller",node="{node}",address="{port[node]}"' for node in (1, 2, 3)),
    }
    own = {'client_certificate_expiry_timestamp_seconds{cluster="prod",property="cluster.client ssl.ca.location"}'}
    assert samples(watch) == (
        {f"listener_up{{{labels}}}": 1 for labels in _sorted(of)}
        | {
            f"listener_certificate_expiry_timestamp_seconds{{{named(labels)}}}": authority.end(first)
            for labels in _sorted(of)
        }
        | dict.fromkeys(own, authority.end(renewed))
    )

    quorum.tls = authority.served(renewed)
    watch.round()

    now = samples(watch)
    assert {end for series, end in now.items() if "certificate" in series} == {authority.end(renewed)}


def named(labels: str) -> str:
    """Return the labels of a listener with those of its certificate: of which it is not known how nodes call it."""
    return labels.replace(',node="', ',listener="",node="')


def _sorted(of: set[str]) -> list[str]:
    """Sort labels by name, as an exposition has them."""
    return [",".join(sorted(labels.split(","))) for labels in of]


def test_a_node_that_is_down_stays_with_its_reason_until_it_responds_again(quorum: Any, authority: Authority) -> None:
    pem = authority.issue("a", 5)
    quorum.tls = authority.served(pem)
    quorum.brokers = {7: quorum.nodes[2].port}
    lines: list[str] = []
    watch = watched(settings_for(quorum, trusting(pem)), lines.append)
    assert lines == []

    quorum.nodes[2].stop()
    quorum.brokers = {}  # as a broker that is down
    watch.round()
    watch.round()

    labels = f'address="127.0.0.1:{quorum.nodes[2].port}",cluster="prod",node="7",role="broker"'
    now = samples(watch)
    assert now[f"listener_up{{{labels}}}"] == 0
    assert now[f"listener_certificate_expiry_timestamp_seconds{{{named(labels)}}}"] == authority.end(pem)
    (line,) = (line for line in lines if line.startswith("broker 7"))
    assert f"at 127.0.0.1:{quorum.nodes[2].port} does not respond: 127.0.0.1" in line
    assert "refused" in line


def test_an_expired_certificate_is_seen_although_no_connection_accepts_it(quorum: Any, authority: Authority) -> None:
    expired = authority.issue("expired", -1)
    quorum.tls = authority.served(expired)
    settings = settings_for(quorum, trusting(expired))
    now = samples(watched(settings))
    assert {end for series, end in now.items() if series.startswith("listener_cert")} == {authority.end(expired)}
    assert authority.end(expired) < time.time()
    findings = list(CHECKS["listeners"](settings))
    assert {status for status, _ in findings} == {Status.OK, Status.PROBLEM}
    assert any(f"certificate of bootstrap at 127.0.0.1:{quorum.nodes[1].port} expired on" in one for _, one in findings)


def test_a_listener_that_gets_no_certificate_is_not_up_but_shows_its_own(quorum: Any, authority: Authority) -> None:
    pem = authority.issue("a", 5)
    quorum.tls = authority.served(pem)
    quorum.tls.verify_mode = ssl.CERT_REQUIRED
    quorum.tls.load_verify_locations(pem)
    now = samples(watched(settings_for(quorum, {"security.protocol": "SSL"})))
    assert {end for series, end in now.items() if series.startswith("listener_cert")} == {authority.end(pem)}
    assert {up for series, up in now.items() if series.startswith("listener_up")} == {0}


def test_a_hung_node_does_not_respond_and_delays_no_other(quorum: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # accepts, as the kernel does for a stopped process
        quorum.brokers = dict.fromkeys(range(10, 40), hung.getsockname()[1]) | {7: quorum.nodes[1].port}
        began = time.monotonic()
        up = samples(watched(settings_for(quorum)))
        assert time.monotonic() - began < 5
    assert [value for series, value in up.items() if 'node="7",role="broker"' in series] == [1]
    assert [value for series, value in up.items() if 'role="broker"' in series].count(0) == 30


def test_a_node_that_moved_or_was_forgotten_has_no_series(quorum: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [Listener(Role.BROKER, "7", Address("127.0.0.1", quorum.nodes[1].port))]
    watch = watched(settings_for(quorum), listed=lambda: listed)
    listed[:] = [Listener(Role.BROKER, "7", Address("127.0.0.1", quorum.nodes[2].port))]
    watch.round()
    assert list(watch.answers) == listed
    gone, listed[:] = listed[:], []
    watch.round()
    assert list(watch.answers) == gone
    monkeypatch.setattr(listener_watch, "REMEMBERED_MICROS", 0)
    watch.round()
    assert watch.answers == {}


def test_a_node_that_was_down_and_is_back_at_another_address_responds_again(quorum: Any) -> None:
    gone, back = (Listener(Role.BROKER, "1", Address("127.0.0.1", port)) for port in (1, quorum.nodes[1].port))
    listed, lines = [gone], list[str]()
    watch = ListenerWatch(settings_for(quorum), Peers(), report=lines.append, listed=lambda: listed)
    watch.round()
    listed[:] = [back]
    watch.round()
    watch.round()
    assert lines[0].startswith(f"broker 1 at {gone.address} does not respond: ")
    assert lines[1:] == [f"broker 1 at {back.address} responds again"]


def test_controllers_are_asked_at_their_own_addresses_with_their_own_table(quorum: Any, authority: Authority) -> None:
    pem = authority.issue("a", 5)
    node = type(quorum.nodes[1])(type(quorum)(tls=authority.served(pem)), 101)
    controllers = ControllersSettings(client=trusting(pem), addresses={"101": f"127.0.0.1:{node.port}"})
    watch = watched(settings_for(quorum, controllers=controllers))
    node.stop()
    assert set(watch.answers.values()) == {""}
    ends = {key: value for key, value in samples(watch).items() if "certificate" in key}
    own = 'cluster="prod",property="cluster.controllers.client ssl.ca.location"'
    shown = f'address="127.0.0.1:{node.port}",cluster="prod",node="101",role="controller"'
    assert ends == {
        f"client_certificate_expiry_timestamp_seconds{{{own}}}": authority.end(pem),
        f"listener_certificate_expiry_timestamp_seconds{{{named(shown)}}}": authority.end(pem),
    }


def test_a_round_ends_while_a_certificate_is_replaced_and_its_key_is_not_yet(quorum: Any, authority: Authority) -> None:
    ours, new = authority.issue("ours", 30), authority.issue("new", 30)
    key = str(ours.with_suffix(".key"))
    client = {"security.protocol": "SSL", "ssl.certificate.location": str(ours), "ssl.key.location": key}
    watch = ListenerWatch(settings_for(quorum, client), Peers())
    ours.write_text(new.read_text())
    watch.round()
    assert {each.role for each in watch.answers} == {Role.BOOTSTRAP}


def test_a_poll_begins_a_round_when_one_is_due_and_neither_it_nor_a_stop_waits_for_it(
    quorum: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_watch, "WAIT_SECONDS", 0.05)
    rounds, end = list[float](), threading.Event()

    def listed() -> list[Listener]:
        rounds.append(time.monotonic())
        end.wait(30)
        return []

    watch = ListenerWatch(settings_for(quorum), Peers(), listed=listed)
    began = time.monotonic()
    assert [watch.poll(Micros(0)) for _ in range(3)] == [[]] * 3
    watch.close()
    assert time.monotonic() - began < 5
    assert len(rounds) == 1
    end.set()
    watch.poll(Micros(0))
    watch.poll(Micros(0))
    assert len(rounds) > 1


def test_addresses_without_end_share_one_entry() -> None:
    peers = Peers()
    first = peers.at(Address("h", 1))
    for port in range(2, MAX_PEERS + 10):
        peers.at(Address("h", port))
    assert peers.at(Address("h", 60_001)) is peers.at(Address("h", 60_002))
    assert peers.at(Address("h", 1)) is first


@pytest.mark.parametrize(("days", "status"), [(100, Status.OK), (13, Status.WARNING), (-1, Status.PROBLEM)])
def test_doctor_names_a_certificate_to_be_renewed(quorum: Any, authority: Authority, days: int, status: Status) -> None:
    pem = authority.issue("own", days)
    quorum.tls = authority.served(authority.issue("of brokers", 500))
    own = {"security.protocol": "SSL", "ssl.certificate.location": str(pem), "ssl.key.location": str(pem)[:-3] + "key"}
    findings = list(CHECKS["listeners"](settings_for(quorum, own)))
    found, sentence = next((found, one) for found, one in findings if "cluster.client" in one)
    assert found is status
    assert "cluster.client ssl.certificate.location" in sentence


def test_that_nodes_throttle_isrwatch_is_one_line_and_another_when_none_does() -> None:
    peers, lines = Peers(), list[str]()
    watch, second = ThrottleWatch(peers, lines.append), 1_000_000
    one, other = peers.at(Address("b", 1)), peers.at(Address("b", 2))
    for number, (millis, of_other) in enumerate(
        [(0, 0), (5, 0), (300, 0), (300, 0), (300, 900), (0, 900), (0, 0), (0, 0)]
    ):
        one.count(throttled_ms=millis)
        other.count(throttled_ms=of_other)
        watch.round(Micros(number * second))
    assert [line.partition(";")[0] for line in lines] == [
        "isrwatch is throttled by a quota: b:1 for 30% of the time",
        "isrwatch is throttled by a quota: b:1 for 30% of the time, b:2 for 90% of the time",
        "no broker throttles isrwatch any more",
    ]
