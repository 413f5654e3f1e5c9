"""Sessions that end, quotas, versions, and resolvers that are slow: what a connection bears without an error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.messages import LogEnd
from streaming.sources.metadata_log.quorum import brokers_of, cluster_id_of, quorum_of
from streaming.sources.permissions import ANYBODY
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.reassignments import listed
from streaming.sources.protocol import config_messages
from streaming.sources.protocol import sockets as sockets_module
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import Connection, ServiceRefused, Session, dialer
from streaming.sources.protocol.offset_messages import HIGH_WATERMARK, list_offsets
from streaming.sources.protocol.security import Security, from_client
from streaming.sources.protocol.sockets import resolved
from streaming.sources.protocol.tokens import COMMAND
from streaming.sources.samples.directories import describe_directories
from streaming.sources.samples.groups.described import DescribedGroup, describe_groups, list_groups
from streaming.sources.samples.quorum import describe_quorum
from streaming.sources.samples.settings import describe_features
from streaming.sources.samples.speed import response_micros
from streaming.sources.samples.transactions import describe_producers, open_transactions
from tests.sources.metadata_log import test_connection as logins

NAME = "black.test"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def cluster_of(connection: Connection) -> str:
    answer = connection.call(MetadataRequest(version=12, topics=[]), MetadataResponse, lambda one: one)
    return str(answer.cluster_id)


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
    monkeypatch.setattr(sockets_module.socket, "getaddrinfo", lambda *_, **__: threading.Event().wait(2) or [])
    monkeypatch.setattr(sockets_module, "IMPATIENT_SECONDS", 0.05)
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
        assert 40 < connection.session.renewed_at - time.monotonic() < 60
        assert cluster_of(connection) == CLUSTER_ID
        connection.session = Session(0.0, time.monotonic() + (0 if is_over else 60))
        sessions.is_over = is_over
        assert cluster_of(connection) == CLUSTER_ID
    assert sessions.logins == 4
    assert peers.at(address).errors == 0
    assert len(quorum.nodes[1].opened) == (1 if is_renewed else 4)


def test_a_session_shorter_than_brokers_let_it_be_renewed_is_opened_again(quorum: Any, address: Address) -> None:
    make, client = MECHANISMS["PLAIN"]
    sessions = Sessions(quorum, make, millis=100)
    connection = Connection(address, from_client(client))
    connection.session = connection.session._replace(renewed_at=0.0)
    assert cluster_of(connection) == CLUSTER_ID
    assert (sessions.logins, len(quorum.nodes[1].opened)) == (2, 2)


def test_a_login_that_is_refused_when_it_is_renewed_is_refused(quorum: Any, address: Address) -> None:
    make, client = MECHANISMS["PLAIN"]
    Sessions(quorum, make, millis=100)
    connection = Connection(address, from_client(client))
    quorum.login = logins.TokenServer  # takes no password
    connection.session = Session(0.0, 0.0, is_too_short=True)
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
    security.tokens.renewed_at = 0.0  # the last one has ended
    connection.session = Session(0.0, time.monotonic() + 60)
    assert cluster_of(connection) == CLUSTER_ID  # nothing to renew it with, and it still holds
    token.write_text(content)
    connection.session = connection.session._replace(renewed_at=0.0)
    assert cluster_of(connection) == CLUSTER_ID
    assert sessions.logins == 2
    token.unlink()
    security.tokens.renewed_at = 0.0
    connection.session = Session(0.0, 0.0)
    with pytest.raises(ConnectionRefused, match=r"the token command .* ended with 1"):
        cluster_of(connection)


def test_a_node_that_hangs_up_on_the_check_after_a_reconnect_refuses(quorum: Any, address: Address) -> None:
    node, checks = quorum.nodes[1], list[str]()
    connection = Connection(address, Security())

    def check() -> None:
        checks.append("who answers")
        cluster_of(connection)

    def hang_up(_: Any) -> None:
        raise ConnectionError

    connection.after_reopening = check
    node.answer_MetadataRequest = hang_up
    node.opened[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionRefused, match="closed the connection"):
        cluster_of(connection)
    assert checks == ["who answers"]


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
    "DescribeConfigs": lambda it: config_messages.describe_configs(it, config_messages.Resource.BROKER, ["1"], []),
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
    "cluster": cluster_id_of,
    "brokers": brokers_of,
    "leader": lambda it: quorum_of(it, "", ANYBODY),
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
    connection.versions = versions
    with suppress(ServiceRefused):
        QUESTIONS[question](connection)
