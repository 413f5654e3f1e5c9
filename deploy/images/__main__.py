"""``python -m deploy.images``: render what the list of the images says, or build the images.

render           writes the Dockerfiles, .dockerignore and the requirements of the images
render --check   says which of them are not current, and exits with 1
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from deploy.images.dockerfile import dockerfile, ignored
from deploy.images.plan import plan
from deploy.images.requirements import requirements
from deploy.release.packages import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def rendered() -> dict[Path, str]:
    """Return every file that follows from the list, by its path."""
    whole = plan()
    files = {ROOT / "deploy" / "docker" / base.file: dockerfile(whole, base) for base in whole.bases.values()}
    locks = {
        ROOT / "requirements" / f"{name}.txt": requirements(variant.extras) for name, variant in whole.variants.items()
    }
    return {**files, **locks, ROOT / ".dockerignore": ignored(whole)}


def outdated() -> list[Path]:
    """Return the files that are not as they would be written."""
    return [path for path, text in rendered().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    commands.add_parser("render").add_argument("--check", action="store_true")
    given = options.parse_args()
    if given.check:
        for path in outdated():
            sys.stderr.write(f"{path.relative_to(ROOT)} is not current: run make generated\n")
        return bool(outdated())
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
