"""Which files are pages of the site, and where each of them is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.builder.references import RENDERED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Pages that stand beside what they describe, and a file in whose place a page is rendered.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "conf/scenarios/README.md": "reference/scenarios.md",
    "conf/sql/README.md": "reference/sql.md",
    "dashboards/runbook.md": "runbook.md",
    "deploy/README.md": "deployment.md",
    "deploy/sandbox/README.md": "sandbox.md",
    "deploy/spark/README.md": "spark.md",
}


def places(root: Path) -> dict[str, str]:
    """Map every page, by its path in the repository, to its path in the site.

    Pages that are rendered have the path that they would have in ``docs/``: links to them are written that way.
    """
    written = {f"docs/{path.name}": path.name for path in sorted((root / "docs").glob("*.md"))}
    return {**_ELSEWHERE, **written, **{f"docs/{place}": place for place in RENDERED}}


def texts(root: Path) -> dict[str, str]:
    """Give the Markdown of every page by its path in the repository, in which its links are written.

    README.md is no page: the site begins with docs/index.md, which is where links to it lead.
    """
    files = [path for path, place in places(root).items() if path != "README.md" and place not in RENDERED]
    rendered = {f"docs/{place}": render() for place, render in RENDERED.items()}
    return {**{path: (root / path).read_text(encoding="utf-8") for path in files}, **rendered}
