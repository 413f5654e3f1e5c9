"""Checks of ``isrwatch doctor`` of listeners: does each respond, is it of its node, and is each address of use?"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_certificates import certificates_of
from streaming.commands.doctor_machine import Status, numbered
from streaming.errors import ConnectionRefused
from streaming.sources.collector.listeners import ask_all, dials_of, discover, distinct, in_words, responders_at
from streaming.sources.protocol.addresses import Peers
from streaming.sources.protocol.identity import DENIED, Role, WrongNode
from streaming.sources.protocol.sockets import Race, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
