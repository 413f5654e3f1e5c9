"""The changelog with what is not released yet, from the fragments that a release will collect."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_MARK: Final = "<!-- towncrier release notes start -->\n"
_KINDS: Final = ("added", "changed", "fixed", "removed")


def changelog_page() -> str:
    """Render CHANGELOG.md, with the fragments as its newest part."""
    head, _, released = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition(_MARK)
    sections = [_section(kind) for kind in _KINDS]
    return "\n".join([head, "## Not yet released", "", *filter(None, sections), released])


def _section(kind: str) -> str:
    fragments = sorted((_ROOT / "changelog.d").glob(f"*.{kind}.md"))
    lines = [f"- {' '.join(path.read_text(encoding='utf-8').split())}" for path in fragments]
    return "\n".join([f"### {kind.title()}", "", *lines, ""]) if lines else ""
