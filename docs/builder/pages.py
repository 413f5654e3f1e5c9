"""Writes all pages into one folder and runs Sphinx."""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.builder.references import REFERENCES
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT: Final = Path(__file__).parents[2]
_MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE: Final = re.compile(r'\["([^"]+)"\]')
_GROUP: Final = re.compile(r"subgraph \w+ \[([^]]+)\](.*?)\bend\b", re.DOTALL)


class DocumentationBroken(IsrwatchError):
    """A page has a link, an anchor or a heading that is wrong; the message has Sphinx' warnings."""


def write_pages(folder: Path) -> None:
    """Write every page, and every other file that one links to, into a folder, which is emptied before."""
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
    """Build the site as HTML in a folder, emptied before; next to it are the pages as Sphinx reads them.

    Raises:
        DocumentationBroken: a page is wrong.
    """
    pages = output.with_name(f"{output.name}-pages")
    write_pages(pages)
    shutil.rmtree(output, ignore_errors=True)
    write_html(pages, output)


def write_html(pages: Path, output: Path) -> None:
    """Run Sphinx on a folder of Markdown files, of which index.md leads to all others.

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


# Files that are pages of the site, and their places in it.


_IN_ITS_PLACE: Final = "README.md"
"""The file in whose place the site has another page, with other headings."""
# Pages that stand next to what they describe.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    _IN_ITS_PLACE: "index.md",
    "conf/scenarios/README.md": "reference/scenarios.md",
    "conf/sql/README.md": "reference/sql.md",
    "deploy/README.md": "deployment.md",
    "deploy/sandbox/README.md": "sandbox.md",
    "exporters/web/runbook.md": "runbook.md",
}


def places(root: Path) -> dict[str, str]:
    """Map every page, by its path in the repository, to its path in the site.

    Pages that are rendered have the path that they would have in ``docs/``: links to them are written that way.
    """
    docs = root / "docs"
    pages = sorted([*docs.glob("*.md"), *(docs / "contributing").glob("*.md")])
    written = {f"docs/{path.relative_to(docs)}": str(path.relative_to(docs)) for path in pages}
    return {**_ELSEWHERE, **written, **{f"docs/{place}": place for place in REFERENCES}}


def texts(root: Path) -> dict[str, str]:
    """Give the Markdown of every page by its path in the repository, in which its links are written.

    README.md is no page: the site begins with docs/index.md, which is where links to it lead.
    """
    files = [path for path, place in places(root).items() if path != _IN_ITS_PLACE and place not in REFERENCES]
    rendered = {f"docs/{place}": render() for place, render in REFERENCES.items()}
    return {**{path: (root / path).read_text(encoding="utf-8") for path in files}, **rendered}


# Turns the links between files of the repository into links of the site.


# Code is left as it is: a fence to its end, or what stands in backticks.
_CODE_OR_LINK: Final = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|(\]\()([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)
_ABSOLUTE: Final = re.compile(r"[a-z]+:|/")
FILES: Final = "files"
"""The folder of the site with the files that pages link to and that are no pages."""


def with_site_links(
    text: str, path: str, places: Mapping[str, str], is_file: Callable[[str], bool]
) -> tuple[str, set[str]]:
    """Return a page with its links as the site has them, and the files that it links to.

    ``places`` has all pages in the site by their path in the repository; targets that are no file of the repository
    stay, and fail the build.
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
            anchor = None if page == _IN_ITS_PLACE else anchor
        elif is_file(target_path):
            linked.add(target_path)
            place = f"{FILES}/{target_path}"
        else:
            return match[0]
        return f"{opening}{posixpath.relpath(place, here or '.')}{anchor or ''})"

    return _CODE_OR_LINK.sub(replaced, text), linked
