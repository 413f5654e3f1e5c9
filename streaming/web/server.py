"""The HTTP server: accepts as many connections as the descriptors of the process allow, and closes those that wait.

A client that waits for a connection while all are taken stays in the kernel's queue: it is served as soon as one is
free, which is at once if another client sends no request.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Mount, Route

from streaming.web import protection
from streaming.web.connections import HEADER_BYTES, HttpConnection, Phase, TimeLimits, connection_limit
from streaming.web.http_counts import OTHER, HttpCounts, Refusal
from streaming.web.markup import STYLE_HASH
from streaming.web.protection import Protection

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    from starlette.applications import Starlette
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STOP_SECONDS: Final = 2
START_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.05
_TICKS_PER_SWEEP: Final = 5  # of 0.1 seconds
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG: Final = logging.getLogger(__name__)
_LOGS: Final = (_LOG, protection.LOG, logging.getLogger("uvicorn.error"), logging.getLogger("asyncio"))


class WebServer(uvicorn.Server):
    """uvicorn with an acceptance of its own: limited, and with a limit of time for every phase of a connection."""

    def __init__(
        self,
        application: Starlette,
        sockets: Sequence[socket.socket],
        protected: Protection | None = None,
        *,
        limits: TimeLimits | None = None,
        most_connections: int | None = None,
    ) -> None:
        """Serve an application on listening sockets, which are closed when the server stops.

        By default it takes as many connections at a time as the limit of descriptors allows.
        """
        self._limits = limits or TimeLimits()
        self._protection = protected or Protection()
        self.counts: Final = HttpCounts()
        config = uvicorn.Config(
            CountedRequests(
                SecuredApplication(application, application.routes, self._protection), application.routes, self.counts
            ),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=int(self._limits.idle) + 1,  # the limit here is exact
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        super().__init__(config)
        self._sockets = list(sockets)
        self._most = connection_limit() if most_connections is None else most_connections
        self._connections: dict[HttpConnection, asyncio.Task[None]] = {}
        self._ticks = 0
        self._once = RepeatFilter()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program: uvicorn would stop, and then end the process by the same signal."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=sockets or [])
        for logger in _LOGS:
            logger.addFilter(self._once)
        self._loop = asyncio.get_running_loop()
        for each in self._sockets:
            each.setblocking(False)
        self._resume()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end what is left."""
        self._pause()
        for each in self._sockets:
            each.close()
        for connection in list(self._connections):
            if not connection.is_connected:
                self._close(connection)
        await super().shutdown(sockets=sockets)
        for logger in _LOGS:
            logger.removeFilter(self._once)

    async def on_tick(self, counter: int) -> bool:
        """Close, each half second, the connections that have waited for their client for too long."""
        self._ticks += 1
        if self._ticks % _TICKS_PER_SWEEP == 0:
            for connection in self._overdue(at_limit=False):
                self._refuse(connection, Refusal.SLOW)
            self._once.log_left_out()
        return await super().on_tick(counter)

    def _overdue(self, *, at_limit: bool) -> list[HttpConnection]:
        return [each for each in self._connections if each.is_overdue(self._limits, at_limit=at_limit)]

    def _accept(self, listening: socket.socket) -> None:
        if len(self._connections) >= self._most and not self._make_room():
            self._pause_shortly()
            return
        try:
            accepted, _ = listening.accept()
        except OSError as error:
            if error.errno in _OUT_OF_DESCRIPTORS:
                _LOG.warning("no HTTP connection can be accepted: %s; raise the limit of open files", error.strerror)
                self.counts.refuse(Refusal.DESCRIPTORS)
                self._pause_shortly()
            return  # the client gave up before
        accepted.setblocking(False)
        rules = self._protection.rules
        connection = HttpConnection(
            self, self._loop, closed=self._forget, counts=self.counts, allowed_names=rules.allowed_names
        )
        self._connections[connection] = self._loop.create_task(self._connect(connection, accepted, rules.context))

    def _make_room(self) -> bool:
        """Close the connection that can best be spared; return False if none can."""
        _LOG.warning(
            "all %d HTTP connections that the limit of open files allows are taken; idle clients, and those that send "
            "no request or do not read, are disconnected for others",
            self._most,
        )
        idle_first = {Phase.NEXT_REQUEST: 0, Phase.REQUEST: 1}
        spared = min(
            self._overdue(at_limit=True), key=lambda each: (idle_first.get(each.waits_for, 2), each.since), default=None
        )
        if spared is None:
            return False
        self._refuse(spared, Refusal.LIMIT)
        return True

    async def _connect(
        self, connection: HttpConnection, accepted: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        times = {"ssl_handshake_timeout": self._limits.request, "ssl_shutdown_timeout": 1.0} if context else {}
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **times)
        except OSError:
            if context is not None:
                self.counts.refuse(Refusal.TLS)
            accepted.close()
            self._forget(connection)

    def _refuse(self, connection: HttpConnection, reason: Refusal) -> None:
        """Disconnect a client; one that is idle after its response loses nothing."""
        if connection.waits_for is not Phase.NEXT_REQUEST:
            self.counts.refuse(reason)
        self._close(connection)

    def _close(self, connection: HttpConnection) -> None:
        """Disconnect a client; what the kernel has already taken of a response still reaches it."""
        task = self._connections[connection]
        self._forget(connection)
        if connection.is_connected:
            connection.transport.abort()
        else:
            task.cancel()

    def _forget(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)

    def _pause(self) -> None:
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)

    def _pause_shortly(self) -> None:
        self._pause()
        self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.add_reader(each, partial(self._accept, each))


@contextmanager
def serving(server: WebServer) -> Iterator[None]:
    """Serve from a thread of this process while the context is open."""
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield
    finally:
        server.should_exit = True
        thread.join()


def _wait_until_started(server: WebServer, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    if not server.started:
        raise AssertionError("the HTTP server did not start")


# Middleware of every request and response, in every program: a count, a login, security headers, a body in parts.


SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "deny",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""No response has a script, loads anything, may be framed or is worth keeping; forms lead back to the program."""


PART_BYTES: Final = 256 * 1024
"""A body is sent in parts of this size, each once the client has read those before: a slow one costs no memory."""


class SecuredApplication:
    """An ASGI application for those who log in, whose responses have security headers.

    Headers of the web configuration file win over those of here; an empty value leaves one out. Whether a login is
    needed is decided by the route that responds, not by how the path is spelled.
    """

    def __init__(self, application: ASGIApp, routes: Sequence[BaseRoute], protection: Protection) -> None:
        self._application, self._routes, self._protection = application, routes, protection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        rules = self._protection.rules
        security = {**SECURITY_HEADERS, **rules.config.headers}

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in security.items():
                    if value:
                        headers.setdefault(name, value)
            for number, part in enumerate(_parts(message)):
                if number:
                    await asyncio.sleep(0)  # for others, and to learn that the client is gone
                await send(part)

        if not await self._may_enter(scope):
            await PlainTextResponse("log in\n", 401, {"WWW-Authenticate": "Basic"})(scope, receive, send_secured)
        else:
            await self._application(scope, receive, send_secured)

    async def _may_enter(self, scope: Scope) -> bool:
        logins = self._protection.rules.logins
        if logins is None or not self._protection.needs_login(scope["method"], _handler(self._routes, scope)):
            return True
        return await logins.accept(Headers(scope=scope).get("Authorization", ""))


class CountedRequests:
    """An ASGI application whose requests are counted, those that are refused a login included."""

    def __init__(self, application: ASGIApp, routes: Sequence[BaseRoute], counts: HttpCounts) -> None:
        self._application, self._routes, self._counts = application, routes, counts
        counts.expect((*_paths(routes), OTHER))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        began, status = time.perf_counter(), 500  # uvicorn responds 500 for an application that fails before
        handler = _handler(self._routes, scope)  # a mounted application changes the scope

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._counts.begin(handler)
        try:
            await self._application(scope, receive, send_counted)
        finally:
            self._counts.end(handler, status, time.perf_counter() - began)


def _paths(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _paths(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            yield prefix + route.path


def _handler(routes: Sequence[BaseRoute], scope: Scope, prefix: str = "") -> str:
    """Return the path, or its pattern, of the route of a request, whatever its method."""
    for route in routes:
        match, inner = route.matches(scope)
        if match is Match.NONE:
            continue
        if isinstance(route, Mount):
            return _handler(route.routes, {**scope, **inner}, prefix + route.path)
        if isinstance(route, Route):
            return prefix + route.path
    return OTHER


def _parts(message: Message) -> Iterator[Message]:
    body = memoryview(message.get("body", b""))
    starts = range(0, len(body), PART_BYTES)
    if len(starts) <= 1:
        yield message
        return
    for start in starts:
        more = start + PART_BYTES < len(body) or message.get("more_body", False)
        yield {**message, "body": body[start : start + PART_BYTES], "more_body": more}


# Log lines that clients can cause at will: each at most once a minute, with how often it was so.


SECONDS: Final = 60.0


@dataclass(slots=True)
class _Occurrence:
    record: logging.LogRecord
    logged_at: float
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """A filter of a logger: lines of the same template pass once a minute; the others are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._occurrences: dict[str, _Occurrence] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged now."""
        now, template = self._clock(), str(record.msg)
        before = self._occurrences.get(template)
        if before is not None and now - before.logged_at < SECONDS:
            before.left_out += 1
            before.record = record
            return False
        self._occurrences[template] = _Occurrence(record, now)
        return True

    def log_left_out(self) -> None:
        """Log how often a line was left out, a minute after it was logged."""
        now = self._clock()
        for template, occurrence in list(self._occurrences.items()):
            if now - occurrence.logged_at < SECONDS:
                continue
            if not occurrence.left_out:
                del self._occurrences[template]
                continue
            line = copy(occurrence.record)
            line.msg, line.args = f"{line.getMessage()} ({occurrence.left_out:,} times more within a minute)", ()
            logging.getLogger(line.name).callHandlers(line)
            occurrence.logged_at, occurrence.left_out = now, 0
