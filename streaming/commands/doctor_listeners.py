"""What ``isrwatch doctor`` says of listeners and certificates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_findings import Status, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.settings import Settings

LEAST_DAYS: Final = 14
_DAY_SECONDS: Final = 86_400


def listeners(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Ask each listener of brokers and controllers, and check how long certificates are valid: theirs and our own."""
    from streaming.sources.collector.listeners import Role, ask_all, dials_of, discover, distinct, own_expiries
    from streaming.sources.protocol.addresses import Peers

    peers = Peers()
    answers = ask_all(distinct(discover(settings)), dials_of(settings, peers))
    silent = {str(one): reason for one, reason in answers.items() if reason and one.role is not Role.BOOTSTRAP}
    yield from ((Status.WARNING, f"{listener} does not respond: {reason}") for listener, reason in silent.items())
    if responding := sum(not reason for reason in answers.values()):
        yield Status.OK, f"of brokers and controllers, {numbered(responding, 'listener')} responded"
    shown = {str(one): peers.at(one.address).certificate_expires_at for one in answers}
    yield from _certificates({name: end for name, end in shown.items() if end is not None} | own_expiries(settings))


def _certificates(ends: dict[str, float]) -> Iterator[tuple[Status, str]]:
    """Name each certificate that must be renewed; of the others only the first to expire."""
    now = time.time()
    for name, end in ends.items():
        date = time.strftime("%Y-%m-%d", time.gmtime(end))
        if end <= now:
            yield Status.PROBLEM, f"the certificate of {name} expired on {date}: renew it"
        elif end < now + LEAST_DAYS * _DAY_SECONDS:
            yield Status.WARNING, f"the certificate of {name} expires on {date}: renew it"
    first = min(ends, key=ends.__getitem__, default=None)
    if first is not None and ends[first] >= now + LEAST_DAYS * _DAY_SECONDS:
        days = (ends[first] - now) / _DAY_SECONDS
        yield Status.OK, f"the first certificate to expire is that of {first}, in {days:.0f} days"
