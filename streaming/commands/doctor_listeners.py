"""Checks of ``isrwatch doctor`` of listeners: does each respond, is it of its node, and is each address of use?

And of certificates: until when do those of the cluster hold, and our own?
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_log import registered_listeners
from streaming.commands.doctor_machine import Status, numbered
from streaming.errors import ConnectionRefused
from streaming.sources.collector import certificates
from streaming.sources.collector.listeners import (
    ask_all,
    dials_of,
    discover,
    distinct,
    in_words,
    own_expiries,
    responders_at,
)
from streaming.sources.protocol.addresses import Peers
from streaming.sources.protocol.identity import DENIED, Role, WrongNode
from streaming.sources.protocol.sockets import Race, resolved

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streaming.settings import Settings
    from streaming.sources.collector.listeners import Listener
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.identity import Responder


_PATIENCE_SECONDS: Final = 1.0


def listeners(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Ask each listener of brokers and controllers, and check how long certificates are valid: theirs and our own."""
    peers = Peers()
    answers = ask_all(distinct(discover(settings)), dials_of(settings, peers))
    silent = {str(one): reason for one, reason in answers.items() if reason and one.role is not Role.BOOTSTRAP}
    yield from ((Status.WARNING, in_words(listener, reason)) for listener, reason in silent.items())
    if responding := sum(not reason for reason in answers.values()):
        yield Status.OK, f"of brokers and controllers, {numbered(responding, 'listener')} responded"
    yield from _identities(responders_at((one for one, reason in answers.items() if not reason), settings, peers))
    yield from certificates_of(answers, settings, peers)
    yield from _dead_addresses([one.address for one in answers])


def _identities(responders: Mapping[Listener, Responder]) -> Iterator[tuple[Status, str]]:
    """Name each address that leads to another node, and why that is unknown of others."""
    wrong = {listener: by for listener, by in responders.items() if by.is_meant is False}
    yield from ((Status.PROBLEM, str(WrongNode(listener.address, by))) for listener, by in wrong.items())
    if proven := sum(by.is_meant is True for by in responders.values()):
        yield (Status.OK, f"of brokers and controllers, {numbered(proven, 'listener')} led to the node that it is of")
    unknown: dict[str, list[str]] = {}
    for by in responders.values():
        if by.is_meant is None:
            unknown.setdefault(by.why_unknown, []).append(str(by.meant))
    for why, nodes in unknown.items():
        status = Status.WARNING if why == DENIED else Status.SKIPPED
        yield status, f"it is unknown whether the addresses of {', '.join(nodes)} lead to them: {why}"


def _dead_addresses(addresses: Iterable[Address]) -> Iterator[tuple[Status, str]]:
    """Name the addresses of a name that accept no connection while others of it do: every client loses time there."""
    for address in dict.fromkeys(addresses):
        try:
            places = resolved(address, _PATIENCE_SECONDS)
        except ConnectionRefused:  # said above
            continue
        if len(places) > 1:
            with closing(Race(places, seconds=_PATIENCE_SECONDS)) as race:
                while (connected := race.next()) is not None:
                    connected[0].close()
                count = len(set(places))
                for place, why in race.failures.items() if len(race.failures) < count else ():
                    yield (
                        Status.WARNING,
                        (
                            f"{address} has {count} addresses, and {place} is of no use ({why}): correct what the name "
                            "resolves to, or what listens there"
                        ),
                    )


LEAST_DAYS: Final = 14
_DAY_SECONDS: Final = 86_400


def certificates_of(answers: Mapping[Listener, str], settings: Settings, peers: Peers) -> Iterator[tuple[Status, str]]:
    """Name the certificates that end soon, or are unseen; a listener of ours that did not respond has a reason."""
    ends = {one.address: (str(one), peers.at(one.address).certificate_expires_at) for one in answers}
    others, unknown = _others(settings, [one.address for one, reason in answers.items() if reason])
    for why in dict.fromkeys(unknown.values()):
        nodes = ", ".join(str(node) for node, each in unknown.items() if each == why)
        yield Status.WARNING, f"unseen are the certificates of all listeners of broker {nodes} that others use: {why}"
    for one, seen in certificates.look_at(certificates.secured(others), settings.cluster.client).items():
        ends[one.address] = f"{one}", seen.ends_at
        if seen.ends_at is None:
            yield Status.WARNING, certificates.in_words(one, seen)
        elif seen.is_early:
            yield Status.PROBLEM, certificates.in_words(one, seen)
    yield from _ends({name: end for name, end in ends.values() if end is not None}, own_expiries(settings))


def _others(settings: Settings, silent: Collection[Address]) -> certificates.Configured:
    """Return the listeners of all nodes: of their configurations, else, as the collector, of the metadata log."""
    configured = certificates.configured(settings, silent=silent)
    registered = registered_listeners(settings) if configured.unknown else {}
    added = {node: registered["broker", node] for node in configured.unknown if ("broker", node) in registered}
    end_points = configured.end_points | {("broker", node): points for node, points in added.items()}
    return certificates.Configured(
        end_points, {node: why for node, why in configured.unknown.items() if node not in added}
    )


def _ends(of_nodes: dict[str, float], own: dict[str, float]) -> Iterator[tuple[Status, str]]:
    """Name each certificate that must be renewed, and only the first to expire of the others."""
    now, ends = time.time(), of_nodes | own
    for name, end in ends.items():
        date = time.strftime("%Y-%m-%d", time.gmtime(end))
        if end <= now:
            advice = certificates.NO_RESTART if name in of_nodes else "renew it"
            yield Status.PROBLEM, f"the certificate of {name} expired on {date}: {advice}"
        elif end < now + LEAST_DAYS * _DAY_SECONDS:
            yield Status.WARNING, f"the certificate of {name} expires on {date}: renew it"
    first = min(ends, key=ends.__getitem__, default=None)
    if first is not None and ends[first] >= now + LEAST_DAYS * _DAY_SECONDS:
        days = (ends[first] - now) / _DAY_SECONDS
        yield Status.OK, f"the first certificate to expire is that of {first}, in {days:.0f} days"
