"""``python -m deploy.images``: render what the list of the images says, or build the images.

render           writes the Dockerfiles, .dockerignore and the requirements of the images
render --check   says which of them are not current, and exits with 1
build            builds both images of the commit that is checked out, with their lists of materials, into dist
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from deploy.images.build import build
from deploy.images.dockerfile import dockerfile, ignored
from deploy.images.materials import requirements
from deploy.images.plan import images
from deploy.release.packages import ROOT
from streaming.errors import IsrwatchError


def rendered() -> dict[Path, str]:
    """Return every file that follows from the list, by its path."""
    whole = images()
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
    builds = commands.add_parser("build")
    builds.add_argument("--directory", type=Path, default=ROOT / "dist", help="default: dist")
    given = options.parse_args()
    if given.command == "build":
        try:
            sys.stdout.write("".join(f"{path}\n" for path in build(given.directory)))
        except (IsrwatchError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    elif given.check:
        for path in outdated():
            sys.stderr.write(f"{path.relative_to(ROOT)} is not current: run make generated\n")
        return bool(outdated())
    else:
        for path, text in rendered().items():
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
