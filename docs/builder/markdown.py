"""Tables and text in Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], pad: str = "") -> list[str]:
    """Return the lines of a table, with a pad around each cell: bars are escaped, and a line end becomes a space."""
    lines = [heading, ["---"] * len(heading), *rows]
    return [f"|{pad}{f'{pad}|{pad}'.join(_cell(cell) for cell in line)}{pad}|" for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def plain(text: str) -> str:
    r"""Escape what Markdown would read as markup in a sentence of the code; what stands in backticks stays.

    >>> plain("a*b of <x> and `c*d`")
    'a\\*b of \\<x> and `c*d`'
    """
    parts = re.split(r"(`[^`]*`)", text.replace("``", "`"))
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]_])", r"\\\1", part) for part in parts)


def code(names: Iterable[str]) -> str:
    """List names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
