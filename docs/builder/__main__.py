"""``python -m docs.builder [--output build/docs]``: builds the documentation as HTML, or says what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.builder.build import DocumentationBroken, build


def main() -> int:
    """Build; 1 if a link, an anchor or a page is missing."""
    parser = argparse.ArgumentParser(prog="python -m docs.builder", description="Build the documentation as HTML.")
    parser.add_argument("--output", type=Path, default=Path("build/docs"), help="folder of the site, emptied before")
    output = parser.parse_args().output
    try:
        build(output)
    except DocumentationBroken as error:
        print(error, file=sys.stderr)  # noqa: T201 - what a command says
        return 1
    print(f"{output / 'index.html'}")  # noqa: T201 - what a command says
    return 0


if __name__ == "__main__":
    sys.exit(main())
