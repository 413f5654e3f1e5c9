"""Every listener that isrwatch connects to, of brokers and controllers: does it respond, and with which certificate?

Off the path of every observation. A round connects to each listener without a login and without verification, so that
it needs no permission and sees an expired certificate as well; it sends ApiVersions, which a hung node does not answer.
Where a listener responds, a second connection with the login asks which node it is (:mod:`identity`).
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.opening import bootstrap_of, controller_addresses
from streaming.sources.permissions import ANYBODY
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import KeysUnusable, ServiceRefused, dialer
from streaming.sources.protocol.identity import NodeIdentity, Role, responder
from streaming.sources.protocol.security import from_client, tls_of, without_login
from streaming.sources.protocol.sockets import Failure, NoAnswer
from streaming.sources.protocol.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.settings import Settings
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.connection import Dial
    from streaming.sources.protocol.identity import Responder

T = TypeVar("T")
SECONDS: Final = 3.0
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener; ``node`` is the id as text, empty for a bootstrap server."""

    role: Role
    node: str
    address: Address

    def __str__(self) -> str:
        return f"{self.role}{self.node and ' '}{self.node} at {self.address}"


def discover(settings: Settings, peers: Peers | None = None) -> list[Listener]:
    """List the listeners that a cluster advertises now to the configured client, and the bootstrap servers.

    What cannot be listed is left out; other sources report why.
    """
    cluster, controllers = settings.cluster, settings.cluster.controllers
    servers, fixed = parse_servers(cluster.bootstrap_servers), controller_addresses(controllers, ANYBODY)
    try:
        bootstrap = bootstrap_of(settings, peers)
    except ConfigurationError:  # a certificate and its key, of which only one is replaced so far
        brokers, quorum = {}, fixed.by_node
    else:
        brokers = _answered(bootstrap.brokers)
        quorum = fixed.by_node or _answered(lambda: bootstrap.quorum(with_addresses=True).nodes)
    return [
        *(Listener(Role.BROKER, str(node), address) for node, address in brokers.items()),
        *(Listener(Role.CONTROLLER, str(node), address) for node, address in quorum.items()),
        *(Listener(Role.BOOTSTRAP, "", address) for address in servers),
    ]


def distinct(listeners: Iterable[Listener]) -> list[Listener]:
    """Return the last listener of each node, and the bootstrap servers that are no broker's."""
    last = {(each.role, each.node or each.address): each for each in listeners}
    brokers = {each.address for each in last.values() if each.role is Role.BROKER}
    return [each for each in last.values() if each.role is not Role.BOOTSTRAP or each.address not in brokers]


def _answered(ask: Callable[[], dict[int, Address]]) -> dict[int, Address]:
    try:
        return ask()
    except ConnectionRefused:
        return {}


def dials_of(settings: Settings, peers: Peers) -> dict[Role, Dial]:
    """Return how each role is connected to."""
    cluster, controllers = settings.cluster, settings.cluster.controllers
    brokers = dialer(without_login(cluster.client), peers)
    own = dialer(without_login(controllers.client), peers) if controllers.client else brokers
    return {Role.BROKER: brokers, Role.CONTROLLER: own, Role.BOOTSTRAP: brokers}


def logins_of(settings: Settings, peers: Peers) -> dict[Role, Dial]:
    """Return how brokers and controllers are connected to with a login.

    Raises:
        ConfigurationError: a certificate and its key, of which only one is replaced so far.
    """
    cluster, controllers = settings.cluster, settings.cluster.controllers
    brokers = dialer(from_client(cluster.client), peers)
    table = "cluster.controllers.client"
    own = dialer(from_client(controllers.client, table), peers) if controllers.client else brokers
    return {Role.BROKER: brokers, Role.CONTROLLER: own}


def responders_at(listeners: Iterable[Listener], settings: Settings, peers: Peers) -> dict[Listener, Responder]:
    """Ask the brokers and controllers at listeners who they are; none is returned for one that does not respond."""
    try:
        dials, cluster_id = logins_of(settings, peers), bootstrap_of(settings, peers).cluster_id()
    except (ConfigurationError, ConnectionRefused):  # other sources report why
        return {}

    def ask(listener: Listener) -> Responder | None:
        meant = NodeIdentity(listener.role, int(listener.node), cluster_id)
        try:
            with closing(dials[listener.role](listener.address, response_seconds=SECONDS)) as connection:
                return responder(connection, meant)
        except ConnectionRefused:
            return None

    asked = _each(ask, (each for each in listeners if each.role in dials))
    return {listener: by for listener, by in asked.items() if by is not None}


def own_expiries(settings: Settings) -> dict[str, float]:
    """Return until when our own certificates and authorities are valid: table and property to seconds since 1970."""
    cluster, exporters = settings.cluster, settings.collect.broker_metrics_client
    tables = tls_of(cluster.client), tls_of(cluster.controllers.client, "cluster.controllers.client")
    used = [tls for tls in (*tables, Tls(exporters, "collect.broker_metrics_client")) if tls is not None]
    return {f"{tls.table} {key}": end for tls in used for key, end in tls.expiries().items()}


class NotAsked(str):
    """Reason why a listener was not asked, which shows nothing of it: this machine could not connect."""

    __slots__ = ()


def in_words(listener: object, reason: str) -> str:
    """Say that a listener does not respond, or was not asked."""
    return f"{listener} {'was not asked' if isinstance(reason, NotAsked) else 'does not respond'}: {reason}"


def ask_all(listeners: Iterable[Listener], dials: Mapping[Role, Dial]) -> dict[Listener, str]:
    """Connect to listeners, a few at a time; return why each does not respond, "" if it does."""

    def ask(listener: Listener) -> str:
        try:
            dials[listener.role](listener.address, response_seconds=SECONDS).close()
        except KeysUnusable as refusal:
            return NotAsked(refusal)
        except ServiceRefused:  # it responds
            return ""
        except ConnectionRefused as refusal:
            is_local = isinstance(refusal, NoAnswer) and refusal.how is Failure.LOCAL
            return NotAsked(refusal) if is_local else str(refusal)
        return ""

    return _each(ask, listeners)


def _each(ask: Callable[[Listener], T], listeners: Iterable[Listener]) -> dict[Listener, T]:
    """Return an answer for each listener; a few are asked at a time."""
    every, answers = list(listeners), dict[Listener, T]()

    def note(listener: Listener) -> None:
        answers[listener] = ask(listener)

    rest = iter(every)
    while some := list(islice(rest, _AT_ONCE)):
        threads = [threading.Thread(target=note, args=(one,), daemon=True) for one in some]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {listener: answers[listener] for listener in every}
