"""Turns the links between files of the repository into links of the site."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Code is left as it is: a fence to its end, or what stands in backticks.
_CODE_OR_LINK: Final = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|(\]\()([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)
_ABSOLUTE: Final = re.compile(r"[a-z]+:|/")
FILES: Final = "files"
"""The folder of the site with the files that pages link to and that are no pages."""


def with_site_links(
    text: str, path: str, places: Mapping[str, str], is_file: Callable[[str], bool]
) -> tuple[str, set[str]]:
    """Return a page with its links as the site has them, and the files that it links to.

    Args:
        text: Markdown.
        path: of the page in the repository.
        places: of all pages in the site, by their path in the repository.
        is_file: whether the repository has a file of that path. Other targets stay, and fail the build.
    """
    here = posixpath.dirname(places[path])
    linked: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        opening, target, anchor = match.groups()
        if opening is None or _ABSOLUTE.match(target):
            return match[0]
        target_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        page = target_path if target_path in places else f"{target_path}/README.md"
        if page in places:
            place = places[page]
        elif is_file(target_path):
            linked.add(target_path)
            place = f"{FILES}/{target_path}"
        else:
            return match[0]
        return f"{opening}{posixpath.relpath(place, here or '.')}{anchor or ''})"

    return _CODE_OR_LINK.sub(replaced, text), linked
