"""OCI archives and lists of materials, of a small image: deleted files are gone, sums are right."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.images.archive import Added, assemble, unpack
from deploy.images.materials import debian, jars

HEALTH = {"Test": ["CMD", "true"], "Interval": 15_000_000_000}
ADDED = Added("isrwatch:1.2.3", "2026-01-02T03:04:05Z", HEALTH, 1_000_000_000)
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def layer(**files: str) -> bytes:
    """A layer with files; "_" in their names stands for "/"."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("_", "/"))
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return raw.getvalue()


def layout(folder: Path, *layers: bytes) -> Path:
    """An image layout as a builder writes it."""

    def blob(raw: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(raw).hexdigest()
        (folder / "blobs" / "sha256" / digest).write_bytes(raw)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(raw)}

    (folder / "blobs" / "sha256").mkdir(parents=True)
    config = {
        "created": "2026-11-30T00:00:00Z", "architecture": "amd64", "os": "linux",
        "config": {"User": "1:0", "Labels": {"a": "b"}}, "history": [{"created": "2026-11-30T00:00:00Z"}],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(each, "layer.v1.tar+gzip") for each in layers],
    }
    index = {"manifests": [blob(json.dumps(manifest).encode(), "manifest.v1+json")]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def test_an_archive_has_the_files_of_all_layers_and_says_what_was_added(tmp_path: Path) -> None:
    first = layer(etc_names="root", opt_a_old="1", opt_b_old="2", opt_kept="3")
    second = layer(**{"opt_.wh.kept": "", "opt_a_.wh..wh..opq": "", "opt_a_new": "4"})
    archive = tmp_path / "image.tar"
    digest = assemble(layout(tmp_path / "layout", first, second), archive, ADDED)
    unpacked = unpack(archive, tmp_path / "root")
    files = {
        str(each.relative_to(unpacked.root)): each.read_text() for each in unpacked.root.rglob("*") if each.is_file()
    }
    assert files == {"etc/names": "root", "opt/a/new": "4", "opt/b/old": "2"}
    assert (unpacked.digest, unpacked.config["Healthcheck"], unpacked.config["User"]) == (digest, HEALTH, "1:0")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        for name in names:
            if name.startswith("blobs/"):
                content = tar.extractfile(name)
                assert content is not None
                assert hashlib.sha256(content.read()).hexdigest() == Path(name).name
        (for_docker,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no list for docker load"))
    assert for_docker["RepoTags"] == ["isrwatch:1.2.3"]
    assert {for_docker["Config"], *for_docker["Layers"]} <= set(names)


def test_the_same_layers_are_the_same_archive(tmp_path: Path) -> None:
    content = layer(a="1")
    for name in ("one", "two"):
        assemble(layout(tmp_path / name, content), tmp_path / f"{name}.tar", ADDED)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_packages_that_were_removed_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    (listed,) = debian(tmp_path)
    assert (listed["name"], listed["version"]) == ("libc6", "2.41-12+deb13u1")
    assert listed["purl"] == "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64"


def test_a_jar_has_the_group_that_it_names_itself_and_none_is_guessed(tmp_path: Path) -> None:
    for name, member in (("netty-all-4.2.1.jar", "META-INF/maven/io.netty/netty-all/pom.properties"), ("x-1.jar", "a")):
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            jar.writestr(member, "")
    netty, unnamed = jars(tmp_path)
    assert netty["purl"] == "pkg:maven/io.netty/netty-all@4.2.1"
    assert netty["hashes"][0]["content"] == hashlib.sha256((tmp_path / "netty-all-4.2.1.jar").read_bytes()).hexdigest()
    assert (unnamed["purl"], "group" in unnamed) == ("pkg:generic/x-1.jar", False)
