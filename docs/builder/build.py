"""Writes all pages into one folder and runs Sphinx."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from docs.builder.links import FILES, with_site_links
from docs.builder.pages import places, texts
from streaming.errors import IsrwatchError

ROOT: Final = Path(__file__).parents[2]
_MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE: Final = re.compile(r'\["([^"]+)"\]')
_GROUP: Final = re.compile(r"subgraph \w+ \[([^]]+)\](.*?)\bend\b", re.DOTALL)


class DocumentationBroken(IsrwatchError):
    """A page has a link, an anchor or a heading that is wrong; the message has Sphinx' warnings."""


def write_pages(folder: Path) -> None:
    """Write every page, and every other file that one links to.

    Args:
        folder: is emptied before.
    """
    shutil.rmtree(folder, ignore_errors=True)
    where = places(ROOT)
    linked: set[str] = set()
    for path, text in texts(ROOT).items():
        page, files = with_site_links(_with_steps(text), path, where, lambda name: (ROOT / name).is_file())
        linked |= files
        target = folder / where[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    for name in linked:
        target = folder / FILES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


def build(output: Path) -> None:
    """Build the site as HTML.

    Args:
        output: folder of the site, emptied before; the pages as Sphinx reads them are in another one beside it.

    Raises:
        DocumentationBroken: a page is wrong.
    """
    pages = output.with_name(f"{output.name}-pages")
    write_pages(pages)
    shutil.rmtree(output, ignore_errors=True)
    write_html(pages, output)


def write_html(pages: Path, output: Path) -> None:
    """Run Sphinx.

    Args:
        pages: folder of Markdown files, of which index.md leads to all others.
        output: folder of the site.

    Raises:
        DocumentationBroken: Sphinx warned of something.
    """
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--conf-dir", str(ROOT / "docs")]
    sphinx = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        "--doctree-dir",
        str(pages / ".doctrees"),
        str(pages),
        str(output),
    ]
    outcome = subprocess.run(sphinx, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - a list of ours
    if outcome.returncode:
        raise DocumentationBroken(
            f"the documentation is not built:\n{outcome.stderr.strip() or outcome.stdout.strip()}"
        )


def _with_steps(text: str) -> str:
    """Write the flow charts, which Sphinx does not draw, as a list: each group of nodes with its steps."""

    def listed(match: re.Match[str]) -> str:
        groups = _GROUP.findall(match[1])
        return "\n".join(f"- **{title}**: {' → '.join(_NODE.findall(nodes))}" for title, nodes in groups)

    return _MERMAID.sub(listed, text)
