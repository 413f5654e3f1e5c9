"""HTML documents with one style, which the default Content-Security-Policy allows by its hash and nothing else."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from streaming.escapes import printable, with_short_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STYLE: Final = (files("streaming.web") / "style.css").read_text(encoding="utf-8")
STYLE_HASH: Final = f"sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}"
"""Hash of the style, as a Content-Security-Policy names it."""


def text(of_others: str) -> str:
    """Return a text, such as a name, as HTML of an element: it begins none, and is all that is seen."""
    return escape(with_short_words(printable(of_others)))


def document(title: str, *body: str, before: str = "") -> str:
    """Return an HTML document; ``body``, and what stands ``before`` its heading, are HTML, the title is text.

    What stands before can be skipped by who has no mouse.
    """
    skip = "<a class=skip href=#main>Skip to the content</a>" if before else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{text(title)}</title><style>{STYLE}</style>"
        f"{skip}{before}<main id=main tabindex=-1><h1>{text(title)}</h1>{''.join(body)}</main></html>\n"
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{text(each)}" for each in header)
    lines = "".join("<tr>" + "".join(f"<td>{text(each)}" for each in row) for row in rows)
    return f"<table><tr>{head}{lines}</table>"


def sentence(words: str, *, is_good: bool) -> str:
    """Return a paragraph that says that something is well, or is not."""
    return f"<p class={'good' if is_good else 'bad'}>{text(words)}</p>"


def link_list(links: Mapping[str, str]) -> str:
    """Return a list of paths, each with what is there."""
    items = (f"<li>{link(path, path)}: {text(words)}" for path, words in links.items())
    return f"<ul>{''.join(items)}</ul>"


def link(address: str, words: str) -> str:
    """Return a link; the address is whole, and encoded as one already."""
    return f'<a href="{escape(address)}">{text(words)}</a>'
