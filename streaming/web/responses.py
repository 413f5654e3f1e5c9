"""Responses in lines and in JSON: whatever a name holds, a line is one line, and JSON is what was put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse

from streaming.escapes import json_text, printable, with_short_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class JsonResponse(JSONResponse):
    """A response in JSON."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - any value of JSON
        """Return the body. Each item of a list is written apart: a long one must not keep other threads waiting."""
        if not isinstance(content, dict):
            return json_text(content, allow_nan=False).encode()
        return f"{{{', '.join(f'{json_text(key)}: {_written(value)}' for key, value in content.items())}}}".encode()


def _written(value: Any) -> str:  # noqa: ANN401 - any value of JSON
    if not isinstance(value, list):
        return json_text(value, allow_nan=False)
    return f"[{', '.join(json_text(each, allow_nan=False) for each in value)}]"


def error_response(sentence: str, status: int) -> JsonResponse:
    """Return an error of an API."""
    return JsonResponse({"error": with_short_words(printable(sentence))}, status)


def lines_response(
    lines: Iterable[str], status: int = 200, headers: Mapping[str, str] | None = None
) -> PlainTextResponse:
    """Return lines for people."""
    return PlainTextResponse("".join(f"{with_short_words(printable(line))}\n" for line in lines), status, headers)
