"""OCI archives: an image as one file, as ``docker load``, ``podman load`` and ``skopeo copy`` take it.

Two builds of the same content are equal byte for byte: every time in the file is given. What the builder's format has
no place for is added: HEALTHCHECK, and the list by which ``docker load`` finds the name.

Source: OCI image layout and image specification 1.1.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
INDEX: Final = "index.json"


@dataclass(frozen=True)
class Added:
    """Content of an archive besides the layers.

    Attributes:
        name: of the image, with its tag.
        created: RFC 3339.
        health: ``Healthcheck`` as Docker's configuration has it.
        mtime: seconds, of every entry of the archive itself.
    """

    name: str
    created: str
    health: Mapping[str, Any]
    mtime: int


@dataclass
class Blobs:
    """The blobs of a layout: files that are there, and those that replace some of them."""

    layout: Path
    new: dict[str, bytes] = field(default_factory=dict)

    def document(self, digest: str) -> dict[str, Any]:
        """Read a blob that is JSON."""
        return dict(json.loads(self.path(digest).read_text(encoding="utf-8")))

    def path(self, digest: str) -> Path:
        """Return the file of a blob of the layout."""
        return self.layout / "blobs" / digest.replace(":", "/")

    def add(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Add a blob of JSON, and return its digest and size, as a descriptor has them."""
        raw = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        self.new[digest] = raw
        return {"digest": digest, "size": len(raw)}


def assemble(layout: Path, archive: Path, added: Added) -> str:
    """Write the archive of a layout with one image, and return the digest of its manifest."""
    blobs = Blobs(layout)
    (described,) = json.loads((layout / INDEX).read_text(encoding="utf-8"))["manifests"]
    manifest = blobs.document(described["digest"])
    config = blobs.document(manifest["config"]["digest"])
    config["created"] = added.created
    config["config"]["Healthcheck"] = added.health
    config["history"] = [{**step, "created": added.created} for step in config["history"]]
    manifest["config"] |= blobs.add(config)
    manifest["annotations"] = {**config["config"]["Labels"], "org.opencontainers.image.created": added.created}
    reference = {"org.opencontainers.image.ref.name": added.name.partition(":")[2]}
    platform = {"architecture": config["architecture"], "os": config["os"]}
    top = {**described, **blobs.add(manifest), "platform": platform, "annotations": reference}
    layers = [each["digest"] for each in manifest["layers"]]
    files: dict[str, bytes | Path] = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        INDEX: json.dumps({"schemaVersion": 2, "manifests": [top]}, sort_keys=True).encode(),
        "manifest.json": json.dumps([_for_docker(added.name, manifest["config"]["digest"], layers)]).encode(),
        **{_place(digest): raw for digest, raw in blobs.new.items()},
        **{_place(digest): blobs.path(digest) for digest in layers},
    }
    draft = archive.with_name(f".{archive.name}")
    with tarfile.open(draft, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(files.items()):
            _add(tar, name, content, added.mtime)
    draft.replace(archive)
    return str(top["digest"])


def _place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _for_docker(name: str, config: str, layers: list[str]) -> dict[str, Any]:
    return {"Config": _place(config), "RepoTags": [name], "Layers": [_place(each) for each in layers]}


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path, mtime: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = mtime, 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    entry.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(entry, file)


@dataclass(frozen=True)
class Unpacked:
    """An image as files, with the configuration of its containers as the image specification names it."""

    root: Path
    config: Mapping[str, Any]
    digest: str


def unpack(archive: Path, root: Path) -> Unpacked:
    """Make the root file system of an image, as root: owners are those of the image."""
    root.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        (top,) = _json(tar, INDEX)["manifests"]
        manifest = _json(tar, _place(top["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_open(tar, _place(layer["digest"])), mode="r|*") as content:
                _apply(content, root)
        return Unpacked(root, _json(tar, _place(manifest["config"]["digest"]))["config"], top["digest"])


def _open(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    return dict(json.load(_open(tar, name)))


def _apply(layer: tarfile.TarFile, root: Path) -> None:
    """Put a layer over what is there; it names what it deletes."""
    for entry in layer:
        path = root / entry.name
        if path.name == OPAQUE:
            for each in path.parent.iterdir():
                _remove(each)
        elif path.name.startswith(WHITEOUT):
            _remove(path.with_name(path.name.removeprefix(WHITEOUT)))
        else:
            if not entry.isdir():
                _remove(path)
            layer.extract(entry, root, numeric_owner=True, filter="fully_trusted")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
