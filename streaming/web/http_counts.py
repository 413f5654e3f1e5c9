"""Counts of a server's requests and connections, and the metrics that its program exposes of them.

Only the thread of the event loop counts; any thread may read.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OTHER: Final = "other"
"""The handler of every path that is not there: random paths make no series."""
_CODES_FROM_THE_START: Final = ("200", "500")


class Refusal(StrEnum):
    """Why a connection was refused."""

    TLS = "tls"
    SLOW = "slow"
    LIMIT = "limit"
    DESCRIPTORS = "descriptors"


class HttpCounts:
    """The counts of one server since its start.

    Attributes:
        requests: by handler and status code.
        seconds: that requests took, by handler.
        in_flight: requests that have begun and not ended.
        in_flight_by: the same by handler.
        refused: connections, by reason.
        arrived_at: when a client last connected, or began another request; seconds of ``time.monotonic``.
    """

    def __init__(self) -> None:
        """Count from 0."""
        self.requests: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, float] = {}
        self.in_flight = 0
        self.in_flight_by: Counter[str] = Counter()
        self.refused: Counter[Refusal] = Counter()
        self.arrived_at = -math.inf

    def expect(self, handlers: Iterable[str]) -> None:
        """Let the series of handlers begin at 0: ``increase()`` does not see the first increment of a new one."""
        for handler in handlers:
            self.seconds.setdefault(handler, 0.0)
            for code in _CODES_FROM_THE_START:
                self.requests.setdefault((handler, code), 0)

    def arrive(self) -> None:
        """Note that a request is about to begin."""
        self.arrived_at = time.monotonic()

    def begin(self, handler: str) -> None:
        """Count a request that is being responded to."""
        self.in_flight += 1
        self.in_flight_by[handler] += 1

    def end(self, handler: str, code: int, seconds: float) -> None:
        """Count a request that began, and took some seconds; what is no longer in flight is counted already."""
        self.requests[handler, str(code)] += 1
        self.seconds[handler] = self.seconds.get(handler, 0.0) + seconds
        self.in_flight -= 1
        self.in_flight_by[handler] -= 1

    def unparseable(self) -> None:
        """Count a request that is no HTTP: it has no handler."""
        self.requests[OTHER, "400"] += 1

    def refuse(self, reason: Refusal) -> None:
        """Count a connection that was refused."""
        self.refused[reason] += 1


class HttpMetric(NamedTuple):
    """A metric of a server.

    Attributes:
        name: as exposed, behind the prefix of the program.
        help: one sentence.
        samples: values of the labels, and of the sample.
        labels: their names.
        unit: of the value; "" for a count.
    """

    name: str
    help: str
    samples: Callable[[HttpCounts], Iterable[tuple[tuple[str, ...], float]]]
    labels: tuple[str, ...] = ()
    unit: str = ""


# A copy is one step of the interpreter: no request of meanwhile changes it.
HTTP_METRICS: Final = (
    HttpMetric(
        "http_requests_total",
        "HTTP requests, by path of the handler (other: a path that is not there) and status code of the response.",
        lambda counts: sorted(counts.requests.copy().items()),
        ("handler", "code"),
    ),
    HttpMetric(
        "http_request_duration_seconds_total",
        "Time from the headers of a request to the end of its response, as fast as the client reads, in sum.",
        lambda counts: [((path,), round(seconds, 6)) for path, seconds in sorted(counts.seconds.copy().items())],
        ("handler",),
        "seconds",
    ),
    HttpMetric(
        "http_requests_in_flight",
        "HTTP requests that are being responded to, this scrape included.",
        lambda counts: [((), counts.in_flight)],
    ),
    HttpMetric(
        "http_refused_connections_total",
        "Connections that were not accepted, or closed before their client had a response, by reason: no TLS handshake "
        "or right certificate (tls), a client that takes too long (slow), or all connections (limit) or descriptors "
        "are taken.",
        lambda counts: [((reason.value,), counts.refused[reason]) for reason in Refusal],
        ("reason",),
    ),
)
