"""Negotiation of format and coding by the ``Accept`` and ``Accept-Encoding`` headers (RFC 9110)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

# zlib's own default: level 9 takes several times as long, for one per cent.
_LEVEL: Final = 6
_CODING: Final = "accept-encoding"
_OPENMETRICS: Final = "application/openmetrics-text"
_OPENMETRICS_VERSION: Final = "1.0.0"
_TEXT_VERSION: Final = "0.0.4"


class AcceptedGzip(GZipMiddleware):
    """Compresses the responses of an application where gzip is accepted: Starlette's asks only whether it is named."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        accepted = [(_CODING.encode(), b"gzip")] if accepts_gzip(Headers(scope=scope).getlist(_CODING)) else []
        others = [each for each in scope["headers"] if each[0] != _CODING.encode()]
        await super().__call__({**scope, "headers": [*others, *accepted]}, receive, send)


def accepts_gzip(headers: Sequence[str]) -> bool:
    """Return whether the ``Accept-Encoding`` headers have gzip, or else ``*``, with a weight other than 0."""
    weights = {coding: weight for coding, _, weight in _weighted(headers)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def prefers_openmetrics(headers: Sequence[str]) -> bool:
    """Return whether the ``Accept`` headers have our version of OpenMetrics, and our text format with no more weight.

    A client that asks for neither gets text, as from every exporter: a scrape is not refused for a header.
    """
    weights = {_OPENMETRICS: 0.0, "text/plain": 0.0}
    versions = {_OPENMETRICS: {"", _OPENMETRICS_VERSION}, "text/plain": {"", _TEXT_VERSION}}
    for kind, parameters, weight in _weighted(headers):
        if kind in weights and parameters.get("version", "") in versions[kind]:
            weights[kind] = max(weights[kind], weight)
    return weights[_OPENMETRICS] > 0 and weights[_OPENMETRICS] >= weights["text/plain"]


def _weighted(headers: Sequence[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield each item with its parameters and its weight: 1 without one, and 0 where that is no number."""
    for item in ",".join(headers).lower().split(","):
        value, *texts = (part.strip() for part in item.split(";"))
        pairs = (text.partition("=") for text in texts)
        parameters = {name.strip(): given.strip().strip('"') for name, _, given in pairs}
        yield value, parameters, _weight(parameters.get("q", "1"))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
