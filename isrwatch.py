"""Entry point of the console script: it checks whose packages it finds before it imports one.

The names ``streaming``, ``exporters`` and ``dashboards`` are also those of other distributions. Where another one's
package comes first on the path, or lies in the same folder, an import would fail far from its cause, or run its code.
"""

import sys
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

PACKAGES = ("streaming", "exporters", "dashboards")
MARK = "isrwatch"
"""Word in the first lines of each package of ours."""


def foreign_package() -> str | None:
    """Say, in one sentence, which package is another one's and how to get rid of it; None if all are ours."""
    for name in PACKAGES:
        spec = PathFinder.find_spec(name)
        place = None if spec is None or spec.origin is None else Path(spec.origin)
        if place is not None and MARK not in place.read_text(encoding="utf-8", errors="replace")[:300]:
            owner = _owner(name)
            whose = f"the distribution {owner}" if owner else f"the folder {place.parent}"
            return (
                f"the package {name} is not that of isrwatch but of {whose}: install isrwatch into a virtual "
                "environment of its own (pipx install isrwatch, or python -m venv), and start it from another folder"
            )
    return None


def _owner(package: str) -> str:
    """Return the name of another distribution that has a package; empty for none."""
    for each in distributions():
        files = each.files or ()
        if each.name != MARK and any(file.parts[:2] == (package, "__init__.py") for file in files):
            return each.name
    return ""


def main() -> None:
    """Run the command line, unless a package is another one's."""
    foreign = foreign_package()
    if foreign is not None:
        sys.exit(foreign)
    from streaming.commands import main as run  # noqa: PLC0415 - after the check

    run()
