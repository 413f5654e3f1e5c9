"""Checks of ``isrwatch doctor`` of certificates: until when do those of the cluster hold, and our own?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_log import registered_listeners
from streaming.commands.doctor_machine import Status
from streaming.sources.collector import certificates
from streaming.sources.collector.listeners import own_expiries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streaming.settings import Settings
    from streaming.sources.collector.listeners import Listener
    from streaming.sources.protocol.addresses import Address, Peers

LEAST_DAYS: Final = 14
_DAY_SECONDS: Final = 86_400


def certificates_of(answers: Mapping[Listener, str], settings: Settings, peers: Peers) -> Iterator[tuple[Status, str]]:
    """Name the certificates that end soon, or are unseen.

    Args:
        answers: why each listener that isrwatch uses did not respond, empty if it did.
        settings: of the cluster.
        peers: have the certificates of those.
    """
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
