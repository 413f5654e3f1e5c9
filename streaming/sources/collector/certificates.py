"""Until when the certificates of all listeners hold, also of those that isrwatch itself does not use.

Brokers replicate through a listener of their own, whose certificate no client ever sees. The listeners are those that
nodes have registered in the metadata log; where that is not read, those of the configuration of each broker. A TLS
hello suffices to be shown the whole chain: no login, no certificate of ours, and any is accepted. What cannot be
reached from here is unseen, which is not fine.
"""

from __future__ import annotations

import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import EndPoint
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.opening import bootstrap_of
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, PermissionDenied, addressed, grantee_of
from streaming.sources.protocol.addresses import Address, parse_address
from streaming.sources.protocol.certificate_chains import validity_of_chain
from streaming.sources.protocol.config_messages import Resource, describe_configs
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, dialer
from streaming.sources.protocol.identity import Role
from streaming.sources.protocol.security import from_client, tls_of
from streaming.sources.protocol.sockets import CONNECT_SECONDS, Race, in_one_sentence, resolved
from streaming.sources.protocol.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from streaming.settings import Settings
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.connection import Dial
    from streaming.sources.protocol.quorum_messages import Quorum

SECONDS: Final = 3.0
SELDOM_SECONDS: Final = 600.0
_LONG_SECONDS: Final = 86_400.0
_AT_ONCE: Final = 16
_SECURED: Final = {1: "SSL", 3: "SASL_SSL"}
_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_ADVERTISED, _LISTENERS = "advertised.listeners", "listeners"
_MAP, _OF_CONTROLLERS = "listener.security.protocol.map", "controller.listener.names"


@dataclass(frozen=True, slots=True)
class SecuredListener:
    """A listener with TLS, by the name that its node gives it."""

    role: Role
    node: str
    name: str
    address: Address

    def __str__(self) -> str:
        return f"listener {self.name} of {self.role} {self.node} at {self.address}"


class Shown(NamedTuple):
    """The answer to a hello: when the first certificate of the path ends, or why none was seen.

    ``begins_at``: when all of them hold; None: unseen. ``has_held``: of one that is unseen, that it held when it was
    seen last, so it may have been renewed since, as that of a node that is permanently down.
    """

    ends_at: float | None
    why_unseen: str = ""
    begins_at: float | None = None
    has_held: bool = False

    @property
    def has_ended(self) -> bool:
        """True if it has, by the clock here."""
        return self.ends_at is not None and self.ends_at <= time.time() and not self.has_held

    @property
    def is_unknown(self) -> bool:
        """True if it is not known whether it holds."""
        return self.ends_at is None or (self.has_held and self.ends_at <= time.time())

    @property
    def is_early(self) -> bool:
        """True if it does not hold yet, by the clock here."""
        return self.begins_at is not None and self.begins_at > time.time()


def secured(end_points: Mapping[tuple[str, int], Iterable[EndPoint]]) -> list[SecuredListener]:
    """Return the listeners with TLS of what nodes have registered, by role and id."""
    return [
        SecuredListener(Role(role), str(node), point.listener, Address(point.host, point.port))
        for (role, node), points in end_points.items()
        for point in points
        if point.security_protocol in _SECURED
    ]


def hello(address: Address, context: ssl.SSLContext | None = None) -> Shown:
    """Connect and begin TLS, as far as the server shows its certificates; ``context`` is that of ``_seeing``."""
    context = context or _seeing({})
    try:
        race = Race(resolved(address, CONNECT_SECONDS))
    except ConnectionRefused as refusal:
        return Shown(None, str(refusal))
    with closing(race):
        while (connected := race.next()) is not None:
            plain, place = connected
            shown = _begun(plain, address, context, SECONDS if race.is_last else race.step_seconds)
            if shown.ends_at is not None:
                return shown
            race.failures[place] = shown.why_unseen
        return Shown(None, in_one_sentence(address, race.failures))


def _seeing(client: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that accepts any certificate, and knows the authorities that clients trust."""
    context = (tls_of(client) or Tls({}, "")).seeing()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # whatever keys a node has: they are not relied on
    return context


def _begun(plain: socket.socket, address: Address, context: ssl.SSLContext, seconds: float) -> Shown:
    plain.settimeout(seconds)
    why = f"{address} shows no certificate"
    with plain, context.wrap_socket(plain, server_hostname=address.host, do_handshake_on_connect=False) as begun:
        try:
            begun.do_handshake()
        except TimeoutError:
            why = f"{address} accepts connections, but is silent in the TLS handshake"
        except (OSError, ValueError) as error:  # also where it wants a certificate of ours: it has shown its own then
            why = f"{address} ends the TLS handshake: {error}"
        seen = validity_of_chain(begun)
    return Shown(None, why) if seen is None else Shown(seen.ends_at, begins_at=seen.begins_at)


def look_at(listeners: Iterable[SecuredListener], client: Mapping[str, str]) -> dict[SecuredListener, Shown]:
    """Say hello to listeners, a few at a time; ``client`` are the properties that say whom clients trust."""
    listed = list(listeners)
    if not listed:
        return {}
    context = _seeing(client)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="certificates") as threads:
        return dict(zip(listed, threads.map(lambda one: hello(one.address, context), listed), strict=True))


# The listeners of a cluster whose metadata log is not read: each broker says its own.


class Configured(NamedTuple):
    """The listeners that brokers have configured, and why those of some brokers are unknown."""

    end_points: dict[tuple[str, int], tuple[EndPoint, ...]]
    unknown: dict[int, str]


def configured(settings: Settings, peers: Peers | None = None, silent: Collection[Address] = ()) -> Configured:
    """Ask each broker that is up for its listeners, and one of them where the controllers are.

    ``silent`` addresses have just not responded: they are not asked.
    """
    try:
        bootstrap, dial = bootstrap_of(settings, peers), dialer(from_client(settings.cluster.client), peers)
        brokers = bootstrap.brokers()
    except (ConfigurationError, ConnectionRefused):
        return Configured({}, {})
    grantee = grantee_of(settings.cluster.bootstrap_servers, settings.cluster.client)
    unknown = {node: f"{address} does not respond" for node, address in brokers.items() if address in silent}
    end_points, of_controllers = dict[tuple[str, int], tuple[EndPoint, ...]](), ""

    def ask(node: int, address: Address) -> tuple[int, dict[str, str] | str]:
        try:
            return node, _of_broker(dial, node, address)
        except ConnectionRefused as refusal:
            return node, str(addressed(refusal, grantee))

    asked = [(node, address) for node, address in brokers.items() if node not in unknown]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="listeners of brokers") as threads:
        for node, answer in threads.map(lambda each: ask(*each), asked):
            if isinstance(answer, str):
                unknown[node] = answer
            else:
                end_points["broker", node] = registered(answer)
                of_controllers = _protocol_of_controllers(answer) or of_controllers
    return Configured(end_points | _of_controllers(bootstrap.quorum, of_controllers), unknown)


def _of_broker(dial: Dial, node: int, address: Address) -> dict[str, str]:
    with closing(dial(address, response_seconds=SECONDS)) as connection:
        keys = [_ADVERTISED, _LISTENERS, _MAP, _OF_CONTROLLERS]
        described = describe_configs(connection, Resource.BROKER, [str(node)], keys).get(str(node))
    if described is None or described.error == CLUSTER_AUTHORIZATION_FAILED:
        raise PermissionDenied(DESCRIBE_BROKER_CONFIGS)
    return {key: each.value or "" for key, each in described.values.items()}


def registered(values: Mapping[str, str]) -> tuple[EndPoint, ...]:
    """Return the listeners that a broker advertises by its configuration; controllers' are not among them."""
    protocols = _pairs(values.get(_MAP, ""), ":")
    controllers = {name.strip() for name in values.get(_OF_CONTROLLERS, "").split(",")}
    advertised = values.get(_ADVERTISED) or values.get(_LISTENERS, "")
    points = []
    for name, at in _pairs(advertised, "://").items():
        protocol = _PROTOCOLS.get(protocols.get(name, name).upper())
        if protocol is None or name in controllers:
            continue
        try:
            address = parse_address(at, _ADVERTISED)
        except ConfigurationError:  # no host: of every interface
            continue
        points.append(EndPoint(name, address.host, address.port, protocol))
    return tuple(points)


def _pairs(text: str, between: str) -> dict[str, str]:
    parts = (part.strip().partition(between) for part in text.split(",") if between in part)
    return {name.strip(): value.strip() for name, _, value in parts}


def _protocol_of_controllers(values: Mapping[str, str]) -> str:
    name = values.get(_OF_CONTROLLERS, "").partition(",")[0].strip()
    protocol = _pairs(values.get(_MAP, ""), ":").get(name, name)
    return f"{name}:{protocol}" if name and protocol in _PROTOCOLS else ""


def _of_controllers(
    quorum: Callable[..., Quorum], name_and_protocol: str
) -> dict[tuple[str, int], tuple[EndPoint, ...]]:
    name, _, protocol = name_and_protocol.partition(":")
    if protocol not in _SECURED.values():
        return {}
    try:
        nodes = quorum(with_addresses=True).nodes
    except ConnectionRefused:
        return {}
    return {
        ("controller", node): (EndPoint(name, at.host, at.port, _PROTOCOLS[protocol]),) for node, at in nodes.items()
    }


class CertificateWatch:
    """Looks at the certificates of all listeners, and says once of each that it is unseen.

    Args:
        settings: of the cluster.
        peers: note what connections see.
        report: takes one line for the user.
        end_points: of the metadata log, by role and id; empty while it is not read.

    Attributes:
        shown: of the last round; of one that is unseen now, the end that it showed last. Replaced, never changed.
        is_known: whether there was a round.
    """

    def __init__(
        self,
        settings: Settings,
        peers: Peers,
        report: Callable[[str], None],
        end_points: Callable[[], Mapping[tuple[str, int], tuple[EndPoint, ...]]],
    ) -> None:
        self.shown: dict[SecuredListener, Shown] = {}
        self.is_known = False
        self._settings, self._peers, self._report, self._end_points = settings, peers, report, end_points
        self._said: dict[SecuredListener, str] = {}
        self.settled_until: dict[SecuredListener, float] = {}
        self._last, self._ask_again_at = Configured({}, {}), 0.0

    def round(self, silent: Collection[Address] = ()) -> None:
        """Say hello to every listener; ``silent`` are addresses that have just not responded.

        To one whose certificate holds for long only now and then: a broker that wants a certificate of ours logs it.
        """
        now = time.monotonic()
        listed = secured(self._end_points() or self._configured(silent, now))
        until = {one: at for one in listed if (at := self.settled_until.get(one, now)) > now}
        seen = look_at((one for one in listed if one not in until), self._settings.cluster.client)
        gone = self._gone(one for one, shown in seen.items() if shown.ends_at is None)
        listed = [one for one in listed if one not in gone]
        before, holds = self.shown, time.time() + _LONG_SECONDS
        self.shown = {one: _with_last_end(seen.get(one, before.get(one)), before.get(one)) for one in listed}
        lasting = {one: shown for one, shown in seen.items() if (shown.ends_at or 0) > holds}
        settled = [one for one, shown in lasting.items() if not shown.is_early]
        self.settled_until = until | dict.fromkeys(settled, now + SELDOM_SECONDS)
        self.is_known = True
        for one, shown in self.shown.items():
            self._say(one, shown)

    def _gone(self, unseen: Iterable[SecuredListener]) -> set[SecuredListener]:
        """Return those of controllers that are no member of the quorum: before Kafka 4.4 their registrations stay."""
        of_controllers = {one for one in unseen if one.role is Role.CONTROLLER}
        if not of_controllers:
            return set()
        try:
            members = {str(each.node) for each in bootstrap_of(self._settings, self._peers).quorum().members}
        except (ConfigurationError, ConnectionRefused):
            return set()
        return {one for one in of_controllers if members and one.node not in members}

    def _configured(self, silent: Collection[Address], now: float) -> Mapping[tuple[str, int], tuple[EndPoint, ...]]:
        """Ask brokers for their listeners, now and then: one that may not be asked logs each question."""
        if now >= self._ask_again_at:
            self._last = configured(self._settings, self._peers, silent)
            self._ask_again_at = now + SELDOM_SECONDS if self._last.unknown or self._last.end_points else now
        return self._last.end_points

    @property
    def ended(self) -> str | None:
        """The listener whose certificate has ended; of several the first, and how many more there are."""
        ends = sorted((shown.ends_at or 0, str(one)) for one, shown in self.shown.items() if shown.has_ended)
        ended = [name for _, name in ends]
        if not ended:
            return None
        return ended[0] if len(ended) == 1 else f"{ended[0]} and {len(ended) - 1} more"

    def _say(self, one: SecuredListener, shown: Shown) -> None:
        """Report what has changed: unseen, seen, ended."""
        said = "unseen" if shown.is_unknown else "ended" if shown.has_ended else "early" if shown.is_early else ""
        if said == self._said.get(one, ""):
            return
        self._said[one] = said
        self._report(in_words(one, shown) if said else f"{one} shows a certificate that holds")


def _with_last_end(now: Shown | None, before: Shown | None) -> Shown:
    """Return what is shown now, with the end that was shown last if there is none now."""
    now = now or Shown(None)
    if now.ends_at is not None or before is None or before.ends_at is None:
        return now
    has_held = before.has_held or (not before.why_unseen and not before.has_ended)
    return now._replace(ends_at=before.ends_at, has_held=has_held)


def in_words(one: SecuredListener, shown: Shown) -> str:
    """Say that a certificate is unseen, does not hold yet, or has ended."""
    if shown.ends_at is None or shown.is_unknown:
        return f"the certificate of {one} is unseen, and until when it holds is unknown: {shown.why_unseen}"
    if shown.is_early:
        begin = time.strftime("%Y-%m-%d %H:%M", time.gmtime(shown.begins_at))
        return f"the certificate of {one} holds only from {begin} UTC on, by the clock here: {_EARLY}"
    date = time.strftime("%Y-%m-%d", time.gmtime(shown.ends_at))
    return f"the certificate of {one} ended on {date}: {NO_RESTART}"


_EARLY: Final = "set that clock, or issue it again, and restart no broker or controller before"
NO_RESTART: Final = "renew it, and restart no broker or controller before: open connections last, new ones are refused"
