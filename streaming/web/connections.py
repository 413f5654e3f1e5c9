"""HTTP connections, and how long each may wait for its client: none holds a descriptor without using it.

uvicorn closes a connection that is idle after a response. One that never sends a request, sends it a byte at a time,
or does not read the response, would stay open for ever: each of these phases has a limit here.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from streaming.web.http_counts import HttpCounts, Refusal
from streaming.web.protection import has_allowed_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from uvicorn.server import Server

HEADER_BYTES: Final = 16 * 1024
"""Longest request line with headers."""
RESERVED_DESCRIPTORS: Final = 256
"""Left for tables, the bus, Kafka: what the program is there for."""
MOST_CONNECTIONS: Final = 2048


class Phase(StrEnum):
    """Phase of a connection: what it waits for."""

    REQUEST = "request"
    RESPONSE = "response"
    READER = "reader"
    NEXT_REQUEST = "next_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Seconds that a client may leave its connection in a phase.

    Attributes:
        request: from the connection, or the first byte of a later request, to the end of the headers; TLS included.
        reader: from the moment that a client did not read a response as fast as it is sent, to its end.
        idle: after a response.
        request_at_limit: as ``request``, when every connection is taken and another client waits for one.
        reader_at_limit: for how long a client may read nothing at all, then; idle ones are closed at once.
    """

    request: float = 10.0
    reader: float = 30.0
    idle: float = 75.0
    request_at_limit: float = 0.2
    reader_at_limit: float = 2.0

    def seconds(self, phase: Phase, *, at_limit: bool) -> float:
        """Return the limit of a phase."""
        match phase:
            case Phase.REQUEST:
                return self.request_at_limit if at_limit else self.request
            case Phase.READER:
                return self.reader_at_limit if at_limit else self.reader
            case Phase.NEXT_REQUEST:
                return 0.0 if at_limit else self.idle
            case Phase.RESPONSE:
                return inf  # it waits for us


class HttpConnection(H11Protocol):
    """One connection of a client, from its acceptance on."""

    def __init__(
        self,
        server: Server,
        loop: asyncio.AbstractEventLoop,
        *,
        closed: Callable[[HttpConnection], None],
        counts: HttpCounts,
        allowed_names: Collection[str] = (),
    ) -> None:
        """Begin to wait for a request; ``closed`` is called once the connection is lost.

        A certificate of a client must have one of the ``allowed_names``; empty allows all.
        """
        super().__init__(server.config, server.server_state, server.lifespan.state, loop)
        self._closed, self._counts, self._allowed_names = closed, counts, allowed_names
        self.is_connected = False
        self._is_paused = False  # writing, until the client has read more
        counts.arrive()
        self._enter(Phase.REQUEST)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to receive."""
        self.is_connected = True
        super().connection_made(transport)
        if not has_allowed_name(transport.get_extra_info("peercert"), self._allowed_names):
            self._counts.refuse(Refusal.TLS)
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        if self.transport.is_closing():
            return
        if self.phase is Phase.NEXT_REQUEST:
            self._counts.arrive()
            self._enter(Phase.REQUEST)
        super().data_received(data)

    def handle_events(self) -> None:
        """Begin to respond if a request is complete; nothing is sent before the client has read the response before."""
        super().handle_events()
        is_responding = self.cycle is not None and not self.cycle.response_complete
        if is_responding and self.phase is not Phase.READER:
            self._enter(Phase.READER if self._is_paused else Phase.RESPONSE)

    def send_400_response(self, msg: str) -> None:
        """Respond to what is no HTTP; no application sees it."""
        self._counts.unparseable()
        super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly."""
        super().pause_writing()
        self._is_paused = True
        self._progressed_at = self.loop.time()
        if self.phase is Phase.RESPONSE:
            self._enter(Phase.READER)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        super().resume_writing()
        self._is_paused = False
        self._progressed_at = self.loop.time()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._enter(Phase.NEXT_REQUEST)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what belongs to the connection."""
        super().connection_lost(exc)
        self._closed(self)

    @property
    def waits_for(self) -> Phase:
        """Return the phase; a client that has yet to read the end of its response is not idle."""
        is_read = self.phase is not Phase.NEXT_REQUEST or not self.transport.get_write_buffer_size()
        return self.phase if is_read else Phase.READER

    def is_overdue(self, limits: TimeLimits, *, at_limit: bool) -> bool:
        """Return whether its client has taken too long."""
        since = self._progressed_at if at_limit else self.since
        return self.loop.time() - since >= limits.seconds(self.waits_for, at_limit=at_limit)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._progressed_at = self.loop.time()


def connection_limit(most: int = MOST_CONNECTIONS) -> int:
    """Return how many connections this process can serve: below its limit of descriptors by what it needs itself."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, descriptors - min(RESERVED_DESCRIPTORS, descriptors // 2)))
