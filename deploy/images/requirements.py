"""The locked Python packages of each image: the part of ``requirements/run.txt`` that its extras need on Linux.

Which package needs which is read from those that are installed here, without a network.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.packages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOCK: Final = ROOT / "requirements" / "run.txt"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
HEAD: Final = "# Written by make generated: the part of run.txt that the extras {extras} need on Linux, for an image.\n"


def requirements(extras: Iterable[str]) -> str:
    """Return the requirements of some extras of ``pyproject.toml``, by version and hash."""
    names = needed(extras)
    blocks = locked()
    return HEAD.format(extras=", ".join(extras)) + "".join(block for name, block in blocks if name in names)


def locked() -> list[tuple[str, str]]:
    """Return the lines of the lock without comments, by package; some have a version for each of several Pythons."""
    text = re.sub(r"^ +#.*\n", "", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(block.partition("==")[0], block) for block in re.findall(r"^\S.*\n(?: .*\n)*", text, flags=re.MULTILINE)]


def needed(extras: Iterable[str]) -> set[str]:
    """Return the names of all packages that some extras need, on any Python that isrwatch runs with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = {"isrwatch": project["dependencies"]} | {
        f"isrwatch[{extra}]": own for extra, own in project["optional-dependencies"].items()
    }
    names: set[str] = set()
    left = ["isrwatch", *(f"isrwatch[{extra}]" for extra in extras)]
    while left:
        name = left.pop()
        if name in names:
            continue
        names.add(name)
        for line in given[name] if name in given else _required(name):
            requirement = Requirement(line)
            plain = canonicalize_name(requirement.name)
            left += [plain, *(f"{plain}[{extra}]" for extra in requirement.extras)]
    return {name.partition("[")[0] for name in names} - {"isrwatch"}


def _required(name: str) -> Iterator[str]:
    """Give what an installed package needs: ``name``, or ``name[extra]`` for what the extra adds."""
    plain, _, extra = name.rstrip("]").partition("[")
    try:
        lines = requires(plain) or []
    except PackageNotFoundError:  # of another system, or another Python
        return
    for line in lines:
        marker = Requirement(line).marker
        if marker is None or any(marker.evaluate(_environment(python, extra)) for python in PYTHONS):
            yield line


def _environment(python: str, extra: str) -> dict[str, str]:
    here = {name: str(value) for name, value in default_environment().items()}
    return here | {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_system": "Linux", "os_name": "posix", "platform_python_implementation": "CPython", "extra": extra,
    }  # fmt: skip
