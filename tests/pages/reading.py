"""A page as a program reads it: its tables by their headings, its links, and the text in between."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

_CELLS = ("th", "td")
_SECONDS = 120


@dataclass
class Read:
    """What a page has.

    Attributes:
        status: of the response.
        url: of the page.
        tables: rows by the headings of their columns.
        links: where each link leads, by its ``rel`` or its words, absolute.
        text: what is between the elements.
    """

    status: int
    url: str
    tables: list[list[dict[str, str]]] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def table(self, *headings: str) -> list[dict[str, str]]:
        """Return the rows of the first table that has these columns; none without such a table."""
        return next((rows for rows in self.tables if rows and {*headings} <= rows[0].keys()), [])


class _Reader(HTMLParser):
    def __init__(self, read: Read) -> None:
        super().__init__()
        self.read = read
        self._headings: list[str] = []
        self._row: list[str] | None = None
        self._in_cell = self._in_head = self._in_style = False
        self._link: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "table":
            self.read.tables.append([])
            self._headings = []
        elif tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self._row = []
        elif tag in _CELLS and self._row is not None:
            self._in_cell = True
            self._row.append("")
        elif tag == "style":
            self._in_style = True
        elif tag == "a" and "href" in given:
            self._link = urljoin(self.read.url, given["href"]), given.get("rel", "")
            if given.get("rel"):
                self.read.links[given["rel"]] = self._link[0]

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._in_head = False
        elif tag in _CELLS:
            self._in_cell = False
        elif tag == "style":
            self._in_style = False
        elif tag == "a":
            self._link = None
        elif tag == "tr" and self._row is not None:
            cells = [" ".join(cell.split()) for cell in self._row]
            if self._in_head:
                self._headings = cells
            elif self._headings:
                self.read.tables[-1].append(dict(zip(self._headings, cells, strict=False)))
            self._row = None

    def handle_data(self, data: str) -> None:
        if self._in_style:
            return
        self.read.text += data
        if self._in_cell and self._row:
            self._row[-1] += data
        if self._link is not None and data.strip():
            self.read.links.setdefault(" ".join(data.split()), self._link[0])


def read_page(status: int, url: str, html: str) -> Read:
    """Read the HTML of a page."""
    reader = _Reader(Read(status, url))
    reader.feed(html)
    return reader.read


def get_page(url: str) -> Read:
    """Ask for a page over HTTP, whatever its status."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:  # noqa: S310 - our own server
            return read_page(response.status, url, response.read().decode())
    except urllib.error.HTTPError as refusal:
        return read_page(refusal.code, url, refusal.read().decode())
