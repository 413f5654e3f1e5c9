"""What every response gets, whatever program it is of: security headers, and a body in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders

from streaming.web.markup import STYLE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


PART_BYTES: Final = 64 * 1024
"""A body is sent in parts of this size, each once the client has read those before: a slow one costs no memory."""


class Secured:
    """An ASGI application whose responses have security headers; those that it sets itself stay."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            for part in _parts(message):
                await send(part)

        await self._application(scope, receive, send_secured)


def _parts(message: Message) -> Iterator[Message]:
    body = memoryview(message.get("body", b""))
    starts = range(0, len(body), PART_BYTES)
    if len(starts) <= 1:
        yield message
        return
    for start in starts:
        more = start + PART_BYTES < len(body) or message.get("more_body", False)
        yield {**message, "body": body[start : start + PART_BYTES], "more_body": more}
