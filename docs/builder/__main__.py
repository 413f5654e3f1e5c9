"""``python -m docs.builder [site|references] [--output FOLDER]``: builds the site, or writes the references only.

The site is HTML, and a link, an anchor or a page that is missing fails its build. The references are the Markdown files
of ``docs/reference``; with ``--check`` nothing is written, and files that are out of date fail.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.render import differing, write
from docs.builder.pages import ROOT, DocumentationBroken, build
from docs.builder.references import rendered_files
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; 1 if a link, an anchor or a page is missing, or a reference is out of date."""
    parser = argparse.ArgumentParser(prog="python -m docs.builder", description="Build the documentation.")
    parser.add_argument("what", nargs="?", choices=("site", "references"), default="site", help="default: site")
    parser.add_argument("--output", type=Path, help="default: build/docs, emptied before; the repository")
    parser.add_argument("--check", action="store_true", help="write no references; fail if they are out of date")
    options = parser.parse_args(arguments)
    try:
        if options.what == "site":
            print(_built(options.output or Path("build/docs")))  # noqa: T201 - what a command says
        else:
            print(_rendered(options.output or ROOT, options.check))  # noqa: T201 - what a command says
    except IsrwatchError as error:
        print(error, file=sys.stderr)  # noqa: T201 - what a command says
        return 1
    return 0


def _built(output: Path) -> str:
    build(output)
    return str(output / "index.html")


def _rendered(output: Path, check: bool) -> str:  # noqa: FBT001 - an option
    folders = rendered_files()
    rendered = ", ".join(folder or ", ".join(files) for folder, files in folders.items())
    if not check:
        for folder, files in folders.items():
            write(output / folder, files)
        return f"{rendered}: rendered"
    stale = [str(Path(folder, name)) for folder, files in folders.items() for name in differing(output / folder, files)]
    if stale:
        raise DocumentationBroken(f"{', '.join(stale)} not up to date; run: make generated")
    return f"{rendered}: up to date"


if __name__ == "__main__":
    sys.exit(main())
