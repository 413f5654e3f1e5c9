"""``python -m deploy.release packages|checksums [--directory DIR]``: what ``make release`` does, in two steps.

``packages`` builds the wheels, the source distribution and their lists of materials from the commit that is checked
out, and refuses a checkout with changes. ``checksums`` is the last step, when everything else is there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from deploy.release import sbom
from deploy.release.packages import ROOT, build, version, write_checksums
from streaming.errors import IsrwatchError


def main() -> int:
    """Build, or write checksums; 1 if the checkout has changes or a build failed."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description="Build the files of a release.")
    parser.add_argument("what", choices=("packages", "checksums", "version"))
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="default: dist")
    options = parser.parse_args()
    try:
        return _run(options.what, options.directory)
    except (IsrwatchError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(what: str, directory: Path) -> int:
    if what == "version":
        print(version())
    elif what == "checksums":
        print(write_checksums(directory))
    elif changed := changes():
        print(f"the checkout has changes, which a release would not have:\n{changed}", file=sys.stderr)
        return 1
    else:
        print(*build(directory), *sbom.write(directory), sep="\n")
    return 0


def changes() -> str:
    """Return what of the checkout is not committed, a line each; empty for nothing."""
    command = ["git", "status", "--porcelain", "--untracked-files=no"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.rstrip()


if __name__ == "__main__":
    sys.exit(main())
