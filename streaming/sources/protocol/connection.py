"""One blocking socket to one Kafka node, with one request in flight at a time."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from contextlib import closing, contextmanager
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kafka.protocol.admin import DescribeQuorumRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from streaming import movement
from streaming.contracts.records import METADATA_VERSION
from streaming.errors import ConfigurationError, ConnectionRefused, InvalidObservation
from streaming.sources.protocol.addresses import Peer, Peers
from streaming.sources.protocol.certificate_chains import end_of_chain
from streaming.sources.protocol.primitives import INT32, ByteReader
from streaming.sources.protocol.security import NEVER, NO_SESSION, Session
from streaming.sources.protocol.sockets import (
    CONNECT_SECONDS,
    Failure,
    NoAnswer,
    Race,
    begin_with,
    first_of,
    in_one_sentence,
    resolved,
)
from streaming.sources.protocol.tls import distrust, refusal_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.security import Security

T = TypeVar("T")
CLIENT_ID: Final = "isrwatch"
CLUSTER_AUTHORIZATION_FAILED: Final = 31  # Kafka's error codes
UNSUPPORTED_VERSION: Final = 35
RESPONSE_SECONDS: Final = 10.0
TURNED_AWAY_SECONDS: Final = 5.0
"""So long an address that does not let us in is not tried again."""
_LEAST_SECONDS: Final = 0.01
_MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
_UNREADABLE: Final = (ValueError, LookupError, struct.error, TypeError, AttributeError)
_LEADER_AND_ISR: Final = 4
_ILLEGAL_SASL_STATE: Final = 34  # of a listener without logins
_ERROR: Final = slice(4, 6)  # behind the correlation id
SIZE: Final = struct.Struct(">i")
"""The first bytes of a request and a response: how many follow."""


class ServiceRefused(ConnectionRefused):
    """The node responds, but refuses: wrong credentials, a missing permission, or too old. A retry changes nothing."""


class NodeTooOld(ServiceRefused):
    """The node is too old for our requests."""


class KeysUnusable(ServiceRefused):
    """Our own certificates cannot be used now, so nothing was said to the node."""


class Connection:
    """An authenticated connection, with the API versions that the node supports.

    Before each request it renews a login whose session ends soon (KIP-368), and connects again where the node has hung
    up while nothing was asked: neither is an error, and who asks does not notice.

    Attributes:
        address: of the node.
        features: the levels of the cluster's features that the node knows, as ``metadata.version``; none of ZooKeeper.
        socket: the one that is open; who asks without waiting uses it alone.
        peer: what is noted of this address.
        muted_until: until when the node reads nothing of this connection, because of a quota (KIP-219); monotonic.
        after_reopening: is called when it has connected again, before anything is asked: another node may be there.

    Args:
        address: of the node.
        security: TLS and login.
        response_seconds: time limit of each request.
        peer: what is noted of this address.
        accepted: is called when an address has accepted the connection, before anything is said on it.

    Raises:
        ConnectionRefused: from every method: unreachable, closed, timed out, or not Kafka; it is unusable then.
        ServiceRefused: the login failed, or it is ``NodeTooOld``.
    """

    def __init__(
        self,
        address: Address,
        security: Security,
        *,
        response_seconds: float = RESPONSE_SECONDS,
        peer: Peer | None = None,
        accepted: Callable[[], object] = lambda: None,
    ) -> None:
        self.address = address
        self.features: dict[str, int] = {}
        self.versions: dict[int, tuple[int, int]] = {}
        self.muted_until = 0.0
        self.after_reopening: Callable[[], object] = lambda: None
        self._security, self.peer, self._accepted = security, peer or Peer(), accepted
        self._correlation, self._is_closed = 0, False
        self._response_seconds, self._step_seconds = response_seconds, NEVER
        self.session, self._is_reopening, self._is_served = NO_SESSION, False, False
        with self._counting_errors():
            self._open()

    def newest(self, api_key: int, supported: int, name: str = "") -> int:
        """Return the newest version that both sides support, -1 when the node does not support this request.

        Nor does it where it supports only versions that are newer than ours: with the request's ``name`` it is refused.

        Raises:
            ServiceRefused: what has this name is supported in newer versions only.
        """
        oldest, newest = self.versions.get(api_key, (0, -1))
        if oldest > supported and name:
            raise ServiceRefused(
                f"{self.address} supports {name} from version {oldest} on, and isrwatch up to {supported}: "
                "upgrade isrwatch"
            )
        return min(supported, newest) if oldest <= supported else -1

    @property
    def is_kraft(self) -> bool:
        """True if its cluster has a metadata quorum: a proxy may leave out the features, and a few of the requests."""
        return METADATA_VERSION in self.features or self.newest(DescribeQuorumRequest.API_KEY, 0) >= 0

    @property
    def has_zookeeper(self) -> bool:
        """True if its cluster uses ZooKeeper, whose brokers alone take leaders from a controller by LeaderAndIsr."""
        return _LEADER_AND_ISR in self.versions

    def required(self, api_key: int, supported: int, name: str) -> int:
        """Return the newest version that both sides support.

        Raises:
            ServiceRefused: there is none; ``name`` is that of the request.
        """
        version = self.newest(api_key, supported, name)
        if version < 0:
            raise ServiceRefused(f"{self.address} does not support {name}")
        return version

    def call(self, request: Any, response: Any, read: Callable[[Any], T]) -> T:  # noqa: ANN401 - kafka-python's messages ship no types
        """Send one request and wait for its response, of the class ``response``; all of it within one time limit.

        ``read`` reads what is needed of it; what fails in it is the fault of the sender.
        """
        with self._counting_errors():
            if not self._is_reopening:
                self._freshen()
            answer = self._exchange(request, response, read)
            self._is_served = True
            return answer

    def _freshen(self) -> None:
        if self._is_hung_up():
            self._reopen()
        else:
            self.renew()

    def renew(self) -> None:
        """Log in again, if the session ends soon; it may have connected again then."""
        if self.session.is_due(time.monotonic()):
            self._renew_session()

    def close(self) -> None:
        """Close the socket."""
        self._is_closed = True
        self.socket.close()

    @contextmanager
    def _counting_errors(self) -> Iterator[None]:
        try:
            yield
        except ConnectionRefused:
            self.peer.count(errors=1)
            raise

    def _exchange(self, request: Any, response: Any, read: Callable[[Any], T]) -> T:  # noqa: ANN401 - as above
        frame = self.framed(request)
        began = time.monotonic()
        until = max(began, self.muted_until) + min(self._response_seconds, self._step_seconds)
        try:
            self.socket.settimeout(max(_LEAST_SECONDS, until - began))
            self.socket.sendall(frame)
            self.peer.count(requests=1, sent_bytes=len(frame))
            size = self.size_in(self._receive(SIZE.size, until))
            data = self._receive(size, until)
        except TimeoutError:
            raise NoAnswer(f"{self.address} did not respond in time", Failure.SILENT) from None
        except OSError as error:
            raise self.closed_by_node(error) from None
        self.peer.count(received_bytes=SIZE.size + size)
        return self.decoded(data, request, response, read)

    def framed(self, request: Any) -> bytes:  # noqa: ANN401 - as above
        """Return the bytes of a request, which is the next one."""
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=CLIENT_ID)
        return bytes(request.encode(header=True, framed=True))

    def size_in(self, head: bytes) -> int:
        """Return how many bytes follow the first four of a response."""
        (size,) = SIZE.unpack(head)
        if not 0 < size <= _MAX_RESPONSE_BYTES:
            raise ConnectionRefused(
                f"{self.address} does not respond in Kafka's protocol; check security.protocol and the port"
            )
        return int(size)

    def closed_by_node(self, error: OSError | str) -> ConnectionRefused:
        """Return the failure of a connection that the node has closed, or says why it does not accept us."""
        if self._security.tls is not None and (refused := refusal_of_ours(error) or self._last_words()):
            return ConnectionRefused(f"{self.address} {self._security.tls.without_ours(refused)}")
        return NoAnswer(f"{self.address} closed the connection: {error}{self._perhaps()}", Failure.CLOSED)

    def _perhaps(self) -> str:
        """Return what to check where a node has closed a connection before it answered anything but its versions."""
        if self._is_served or self._security.mechanism is not None:
            return ""
        table = self._security.table
        if not self.versions:
            return (
                f"; if it goes on, check the port, security.protocol of {table}, and how many connections it allows "
                "(max.connections.per.ip, max.connections)"
            )
        return f"; if it asks for a login, set security.protocol and sasl.mechanism of {table}"

    def _last_words(self) -> str:
        """Return what a node has said before it closed a connection with TLS, where a request met the end of it first.

        In TLS 1.3 a server looks at our certificate when the handshake is over for us.
        """
        try:
            self.socket.settimeout(0)
            self.socket.recv(1)
        except (OSError, ValueError) as error:
            return refusal_of_ours(error) if isinstance(error, OSError) else ""
        return ""

    def _open(self) -> None:
        """Connect and log in at the first address of the name that lets us do all of it.

        While others are left, each step of an address, TLS or a response, has a limit of its own: one that is far away
        is not taken for one that is silent. A refused login is the last word of all of them.
        """
        self.muted_until, self.session, self._is_served = 0.0, NO_SESSION, False
        places = resolved(self.address, CONNECT_SECONDS)
        until = time.monotonic() + 2 * CONNECT_SECONDS
        with closing(Race(places, first=first_of(self.address))) as race:
            while (connected := race.next()) is not None:
                plain, place = connected
                self._accepted()
                self._step_seconds = NEVER if race.is_last else race.step_seconds
                try:
                    self._greet(plain)
                except ServiceRefused:
                    raise
                except ConnectionRefused as refusal:
                    race.fail(place, str(refusal), getattr(refusal, "how", Failure.UNFIT))
                else:
                    self._step_seconds = NEVER
                    begin_with(self.address, str(place))
                    return
                if time.monotonic() > until:
                    break
            begin_with(self.address, race.upcoming)
            raise NoAnswer(in_one_sentence(self.address, race.failures), race.how)

    def _greet(self, plain: socket.socket) -> None:
        """Secure a connected socket, ask which requests the node supports, and log in."""
        self.socket = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = self._secured(plain)
            self.versions = self._ask_versions()
            if self._security.mechanism is not None:
                self._log_in(self._security)
        except BaseException:
            self.socket.close()
            raise

    def _secured(self, plain: socket.socket) -> socket.socket:
        security = self._security
        if security.tls is None:
            return plain
        try:
            context = security.tls.context()
        except ConfigurationError as error:  # a file has changed since the start
            raise KeysUnusable(str(error)) from None
        try:
            plain.settimeout(min(CONNECT_SECONDS, self._step_seconds))
            secured = context.wrap_socket(plain, server_hostname=self.address.host)
        except TimeoutError:
            why = "accepts connections, but is silent in the TLS handshake"
            raise NoAnswer(f"{self.address} {why}", Failure.SILENT) from None
        except (ssl.SSLEOFError, ConnectionError):
            raise NoAnswer(
                f"{self.address} refuses TLS: it closes the connection; check the port, security.protocol and the ssl "
                f"keys of {security.table}",
                Failure.CLOSED,
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise ConnectionRefused(f"{self.address} {distrust(error, security.table)}") from None
        except OSError as error:
            if refused := refusal_of_ours(error):
                raise ConnectionRefused(f"{self.address} {security.tls.without_ours(refused)}") from None
            raise ConnectionRefused(
                f"{self.address} refuses TLS: {error}; check the ssl keys of {security.table}"
            ) from None
        self.peer.certificate_expires_at = end_of_chain(secured) or self.peer.certificate_expires_at
        return secured

    def _is_hung_up(self) -> bool:
        """Return whether the node has closed the connection, or sent anything, while nothing was asked."""
        if self._is_closed:
            raise ConnectionRefused(f"{self.address}: the connection is closed")
        try:
            self.socket.settimeout(0)
            self.socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):  # of TLS 1.3 there may be tickets, which are not for us
            return False
        except OSError:
            return True
        return True

    def _reopen(self) -> None:
        """Connect again, and check who answers; what is asked for that does not connect once more."""
        self.socket.close()
        self._open()
        self._is_reopening = True
        try:
            self.after_reopening()
        except BaseException:
            self.close()
            raise
        finally:
            self._is_reopening = False

    def _renew_session(self) -> None:
        """Log in again on this connection, which remains (KIP-368); where that fails, on another one.

        While no new token is to be had, the session is used to its end.
        """
        try:
            self._security.prepare()
        except ConnectionRefused:
            if self.session.is_over(time.monotonic()):
                raise
            self.session = self.session.later(time.monotonic())
            return
        try:
            if self.session.is_too_short:
                self._reopen()
            else:
                self._log_in(self._security)
        except ConnectionRefused:
            self._reopen()

    def decoded(self, data: bytes, request: Any, response: Any, read: Callable[[Any], T]) -> T:  # noqa: ANN401 - as above
        """Decode the response to the last request, behind the size, and note for how long the node mutes us."""
        try:
            answer = response.decode(data, version=request.API_VERSION, header=True)
            if answer.header.correlation_id != self._correlation:
                raise ConnectionRefused(f"{self.address} responded to another request than the one sent")
            of_answer = getattr(answer, "throttle_time_ms", None)  # as kafka-python has it; ours is in the header
            self._note_throttle(of_answer or getattr(answer.header, "throttle_time_ms", 0))
            return read(answer)
        except (*_UNREADABLE, AssertionError) as error:  # kafka-python asserts what a response must be
            reason = str(error) or type(error).__name__
            raise ConnectionRefused(f"{self.address} sent a response that cannot be decoded: {reason}") from None

    def _note_throttle(self, millis: int | None) -> None:
        if millis is not None and millis > 0:
            self.peer.count(throttled_ms=millis)
            self.muted_until = time.monotonic() + millis / 1_000

    def _receive(self, size: int, until: float) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            left = until - time.monotonic()
            if left <= 0:  # a socket's own limit begins again with every byte
                raise TimeoutError
            self.socket.settimeout(left)
            received = self.socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("end of stream")
            filled += received
            movement.note()
        return bytes(data)

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """Ask in the newest way, and in the oldest of Kafka before 2.4, which refuses the newest (KIP-511)."""
        newest = ApiVersionsRequest(version=3, client_software_name=CLIENT_ID, client_software_version="1")
        for request in (newest, ApiVersionsRequest(version=0)):
            versions, self.features = self._exchange(request, _Versions, _versions_and_features)
            if versions:
                return versions
        raise NodeTooOld(f"{self.address} is too old: it does not say which requests it supports")

    def _log_in(self, security: Security) -> None:
        if self.newest(SaslHandshakeRequest.API_KEY, 1) < 1:
            raise NodeTooOld(f"{self.address} is older than Kafka 1.0: it does not support SaslHandshake 1")
        request: Any = SaslHandshakeRequest(version=1, mechanism=security.mechanism)
        error, offered = self._exchange(
            request, SaslHandshakeResponse, lambda one: (one.error_code, ", ".join(one.mechanisms))
        )
        if error == _ILLEGAL_SASL_STATE or (error and not offered):
            raise ServiceRefused(
                f"{self.address} asks for no login: set {security.table} security.protocol to "
                f"{'PLAINTEXT' if security.tls is None else 'SSL'}, or name a listener that does"
            )
        if error:
            raise ServiceRefused(
                f"{self.address} does not offer {security.mechanism}; "
                f"set {security.table} sasl.mechanism to one of {offered}"
            )
        exchange, began, answer = security.exchange(), time.monotonic(), None
        while not exchange.is_done():
            version = self.required(SaslAuthenticateRequest.API_KEY, 1, "SaslAuthenticate")
            request = SaslAuthenticateRequest(version=version, auth_bytes=exchange.auth_bytes())
            answer = self._exchange(request, SaslAuthenticateResponse, lambda one: one)
            if answer.error_code:
                raise self._login_failed(security, answer.error_message)
            try:
                exchange.receive(answer.auth_bytes)
            except _UNREADABLE as failure:
                raise self._login_failed(security, str(failure)) from None
        lifetime = getattr(answer, "session_lifetime_ms", None) or 0
        self.session = Session.of(began, lifetime / 1_000) if lifetime > 0 else NO_SESSION

    def _login_failed(self, security: Security, reason: str | None) -> ServiceRefused:
        security.refused()
        return ServiceRefused(
            f"{self.address} refuses {security.login}: {reason}; check {security.keys} of {security.table}"
        )


class _Versions:
    """Decodes responses to ApiVersions, without what follows an error: it differs between versions (KIP-511)."""

    @staticmethod
    def decode(data: bytes, **how: Any) -> Any:  # noqa: ANN401 - as above
        return ApiVersionsResponse.decode(data[: _ERROR.stop] + bytes(4) if any(data[_ERROR]) else data, **how)


def _versions_and_features(answer: Any) -> tuple[dict[int, tuple[int, int]], dict[str, int]]:  # noqa: ANN401 - as above
    features = {item.name: item.max_version_level for item in answer.finalized_features or ()}
    return {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}, features


class Dial(Protocol):
    """Opens a connection; replaced in tests."""

    def __call__(self, address: Address, *, response_seconds: float) -> Connection:
        """Connect and authenticate."""


class Dialer:
    """Opens connections with one set of credentials, and notes what it sees of each address.

    An address that does not let us in, by TLS or a login, is not tried again for ``TURNED_AWAY_SECONDS``: it would be
    refused again, and each time is a line in the node's log.
    """

    def __init__(self, security: Security, peers: Peers | None = None) -> None:
        self._security, self._peers = security, peers or Peers()
        self._turned_away: dict[Address, tuple[float, ConnectionRefused]] = {}

    def __call__(
        self, address: Address, *, response_seconds: float, accepted: Callable[[], object] = lambda: None
    ) -> Connection:
        """Connect and authenticate; ``accepted`` is called in between."""
        began, peer = time.monotonic(), self._peers.at(address)
        until, before = self._turned_away.get(address, (began, None))
        if before is not None and began < until:
            raise before.with_traceback(None)
        try:
            return Connection(address, self._security, response_seconds=response_seconds, peer=peer, accepted=accepted)
        except ConnectionRefused as refusal:
            is_unfit = isinstance(refusal, NoAnswer) and refusal.how is Failure.UNFIT
            if is_unfit or (isinstance(refusal, ServiceRefused) and not isinstance(refusal, KeysUnusable)):
                self._turned_away[address] = began + TURNED_AWAY_SECONDS, refusal
            raise


dialer: Final = Dialer


# Requests and responses whose bytes are written and read here: for what is asked of every partition, again and again.
#
# In the flexible versions (KIP-482). They go over a ``Connection`` as kafka-python's messages do.


_HEADER: Final = struct.Struct(">hhi")  # key, version, correlation id
_LOW_BITS: Final = 0x7F


class RawRequest:
    """A request of one version, with its body as bytes."""

    def __init__(self, api_key: int, version: int, body: bytes) -> None:
        self.API_KEY, self.API_VERSION = api_key, version
        self._body, self._header = body, b""

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Set the header, of version 2."""
        name = client_id.encode()
        fixed = _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id)
        self._header = fixed + struct.pack(">h", len(name)) + name + b"\0"

    def encode(self, *, header: bool, framed: bool) -> bytes:  # noqa: ARG002 - the signature of kafka-python's messages
        """Return the frame."""
        return INT32.pack(len(self._header) + len(self._body)) + self._header + self._body


VALUE: Final = attrgetter("value")
"""Takes the value of what ``RawResponse`` decodes."""


class RawResponse(Generic[T]):
    """Decoder of a response's body; ``decode`` returns the header, of version 1, and the ``value``.

    Args:
        read: reads the body, behind the time for which the client is throttled, up to the tagged fields at its end.
    """

    def __init__(self, read: Callable[[ByteReader], T]) -> None:
        self._read = read

    def value_of(self, connection: Connection, request: RawRequest) -> T:
        """Send a request, and return the value of its response.

        Raises:
            ConnectionRefused: the node does not respond, or not so.
        """
        return connection.call(request, self, VALUE)  # type: ignore[no-any-return]

    def decode(self, data: bytes, *, version: int, header: bool) -> Any:  # noqa: ANN401, ARG002 - as kafka-python's
        """Decode a response with its header.

        Raises:
            ValueError: the bytes are no such response.
        """
        reader = ByteReader(data)
        try:
            head = SimpleNamespace(correlation_id=reader.number(INT32))
            reader.tags()
            head.throttle_time_ms = reader.number(INT32)
            return SimpleNamespace(header=head, value=self._read(reader))
        except InvalidObservation as error:
            raise ValueError(str(error)) from None


def unsigned_varint(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first."""
    encoded = bytearray()
    while value > _LOW_BITS:
        encoded.append(value & _LOW_BITS | _LOW_BITS + 1)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_string(text: str) -> bytes:
    """Encode a string of a flexible version."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Encode an array of elements that are encoded."""
    listed = list(elements)
    return unsigned_varint(len(listed) + 1) + b"".join(listed)
