"""What every request and response gets, in every program: a count, a login, security headers, a body in parts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Mount, Route

from streaming.web.http_counts import OTHER
from streaming.web.markup import STYLE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from streaming.web.http_counts import HttpCounts
    from streaming.web.protection import Protection

SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "deny",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""No response has a script, loads anything, may be framed or is worth keeping."""


PART_BYTES: Final = 256 * 1024
"""A body is sent in parts of this size, each once the client has read those before: a slow one costs no memory."""


class Secured:
    """An ASGI application for those who log in, whose responses have security headers.

    Headers of the web configuration file win over those of here; an empty value leaves one out.
    """

    def __init__(self, application: ASGIApp, protection: Protection) -> None:
        self._application, self._protection = application, protection

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

        authorization = Headers(scope=scope).get("Authorization", "")
        if rules.logins is not None and not await rules.logins.accept(authorization):
            await PlainTextResponse("log in\n", 401, {"WWW-Authenticate": "Basic"})(scope, receive, send_secured)
        else:
            await self._application(scope, receive, send_secured)


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

        self._counts.begin()
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
