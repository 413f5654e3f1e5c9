"""Pages of ordered rows. A cursor names the last row of a page by its key, so the next page goes on behind that row.

Rows that come or go between two pages therefore shift no others: each row that stays is returned once. A row whose own
key changes (a renamed cluster) may come twice or not at all; the response says that the tables have changed meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from exporters.web.parameters import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins.

    Attributes:
        version: of the tables as the first page was made.
        key: of the last row returned.
    """

    version: int
    key: Key

    def encoded(self, selection: str) -> str:
        """Return the cursor for a client, bound to what the request selected."""
        document = json.dumps([selection, self.version, *self.key], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the rows.

    Attributes:
        rows: in order.
        count: how many rows there are on all pages.
        has_more: whether more rows follow.
        last: key of the last row, if more rows follow it.
    """

    rows: list[T]
    count: int
    has_more: bool
    last: Key | None


def selection_of(name: str, values: Mapping[str, Any]) -> str:
    """Identify what a request selects, however large its pages are."""
    filters = {key: value for key, value in values.items() if key not in {"limit", "cursor"}}
    text = json.dumps([name, filters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cursor_of(text: str, selection: str, types: tuple[type[str | int], ...]) -> Cursor:
    """Decode a cursor.

    Args:
        text: as the client has it.
        selection: of this request; a cursor of another one is refused.
        types: of the parts of a key.

    Raises:
        RequestRefused: it is not one that a response of this selection had.
    """
    try:
        document = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        given, version, *key = document
        is_ours = given == selection and type(version) is int and [type(part) for part in key] == list(types)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        is_ours = False
    if not is_ours:
        sentence = "the cursor is not one of this request; take next_cursor of a response, and leave the filters as is"
        raise RequestRefused(400, sentence)
    return Cursor(version, tuple(key))


def page_of(rows: Iterable[T], key: Callable[[T], Key], limit: int, after: Key | None) -> Page[T]:
    """Take the rows behind a key, up to a limit, and count all of them.

    Args:
        rows: in the order of their keys.
        key: of a row; no other row has the same.
        limit: how many are returned.
        after: the last key of the page before; None for the first page.
    """
    taken: list[T] = []
    count, has_more = 0, False
    for row in rows:
        count += 1
        if has_more or (after is not None and key(row) <= after):
            continue
        if len(taken) < limit:
            taken.append(row)
        else:
            has_more = True
    return Page(taken, count, has_more, key(taken[-1]) if taken and has_more else None)
