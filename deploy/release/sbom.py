"""Software bills of materials (CycloneDX 1.6, JSON), from the locks: Python packages by version, jars by SHA-256.

A list has what an installation of every extra may contain on Linux; a package that only some versions of Python need
has its marker as a property. Nothing in it depends on the machine that writes it, but licences, which are those that
the installed packages declare.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import Marker

from deploy.release.packages import KAFKA_JARS, PYTHONS, ROOT, commit_seconds, version
from streaming.runtime.jars import PACKAGE, SPARK_KAFKA, groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOCK: Final = ROOT / "requirements" / "run.txt"
_PROJECT: Final = "isrwatch (pyproject.toml)"
"""Name that the lock gives the project where it needs a package; what only its build needs has another one."""
_BLOCK: Final = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.+?))? \\\n(?: {4}--hash=.*\n)+((?: {4}#.*\n?)*)", re.MULTILINE)
_LINUX: Final = {"sys_platform": "linux", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
_LICENCE: Final = "License :: OSI Approved :: "
_LONGEST_NAME: Final = 60
"""Characters of a licence's name; some packages have the whole text in that place."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of the lock: ``marker`` is empty if every Python needs it, ``needed_by`` has names of packages."""

    name: str
    version: str
    marker: str
    needed_by: frozenset[str]

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"

    def is_for_linux(self) -> bool:
        """Return whether a Python that isrwatch supports needs it on Linux."""
        return not self.marker or any(
            Marker(self.marker).evaluate({**_LINUX, "python_version": each, "python_full_version": f"{each}.0"})
            for each in PYTHONS
        )


def locked_packages(lock: str) -> list[Locked]:
    """Read the lock: the packages that isrwatch needs on Linux, without those that only build it."""
    every = [
        Locked(name, number, marker or "", frozenset(re.findall(r"(?:# via|#  ) +(\S.*)", comments)))
        for name, number, marker, comments in _BLOCK.findall(lock)
    ]
    needed: set[str] = set()
    before = -1
    while before < len(needed):
        before = len(needed)
        needed |= {each.name for each in every if each.needed_by & (needed | {_PROJECT})}
    return [each for each in every if each.name in needed and each.is_for_linux()]


def of_packages() -> dict[str, Any]:
    """Return the list of isrwatch with every extra."""
    every = locked_packages(LOCK.read_text(encoding="utf-8"))
    refs: dict[str, list[str]] = {}
    for each in every:
        for name in each.needed_by:
            refs.setdefault(name, []).append(each.purl)
    root = component_of("isrwatch", f"pkg:pypi/isrwatch@{version()}", version(), "application", "Apache-2.0")
    components = [_of_package(each) for each in every]
    needs = {each.purl: sorted(refs.get(each.name, [])) for each in every}
    return document_of(root, components, {root["bom-ref"]: sorted(refs[_PROJECT]), **needs})


def of_jars() -> dict[str, Any]:
    """Return the list of the package of jars."""
    root = component_of(KAFKA_JARS, f"pkg:pypi/{KAFKA_JARS}@{version()}", version(), "application", "Apache-2.0")
    components = [
        component_of(jar.artifact, f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}", jar.version)
        | {"group": jar.group, "hashes": [{"alg": "SHA-256", "content": checksum}]}
        for jar, checksum in groups()[SPARK_KAFKA].jars.items()
    ]
    return document_of(root, components, {root["bom-ref"]: [each["bom-ref"] for each in components]})


def write(directory: Path) -> list[Path]:
    """Write the list of each wheel next to it, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in (("isrwatch", of_packages()), (PACKAGE, of_jars())):
        path = directory / f"{name}-{version()}.cdx.json"
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        written.append(path)
    return written


def _of_package(package: Locked) -> dict[str, Any]:
    component = component_of(package.name, package.purl, package.version, licence=licence_of(package.name))
    if package.marker:
        component["properties"] = [{"name": "isrwatch:marker", "value": package.marker}]
    return component


def component_of(name: str, purl: str, number: str, kind: str = "library", licence: str = "") -> dict[str, Any]:
    """Return a component of a list, which others refer to by its package URL."""
    licences = {"licenses": [{"license": {"name": licence}}]} if licence else {}
    return {"type": kind, "bom-ref": purl, "name": name, "version": number, **licences, "purl": purl}


def licence_of(name: str) -> str:
    """Return the licence that an installed package declares; empty if it is not installed, or declares none."""
    try:
        declared = metadata(name)
    except PackageNotFoundError:
        return ""
    classified = [each.removeprefix(_LICENCE) for each in declared.get_all("Classifier") or () if _LICENCE in each]
    short = [str(declared[key] or "") for key in ("License-Expression", "License")]
    names = [each for each in (*short, *classified) if each and len(each) <= _LONGEST_NAME and "\n" not in each]
    return names[0] if names else ""


def document_of(
    root: Mapping[str, Any], components: list[dict[str, Any]], needs: Mapping[str, Iterable[str]]
) -> dict[str, Any]:
    """Return a whole list of a component and what is inside; its time is that of the commit.

    ``needs`` has package URLs of what each one needs, by its own.
    """
    made = dt.datetime.fromtimestamp(commit_seconds(), dt.UTC)
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{root['purl']} {made.isoformat()}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": dict(root)},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": list(needed)} for ref, needed in needs.items()],
    }
