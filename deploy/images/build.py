"""``make images``: both images, built without a registry, from Debian's packages and the commit that is checked out.

The base is what ``debian:trixie-slim`` is, with the packages that both images have, made by mmdebstrap. buildah then
runs the Dockerfile of the commit on it, each step in a chroot. Results stay in ``build/images``: a run that was stopped
continues with the step that it was at, and a step runs again only if its input has changed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.images.archive import Added, assemble, unpack
from deploy.images.dockerfile import EPOCH, HEALTH
from deploy.images.materials import write_materials
from deploy.images.plan import BUILT, images
from deploy.release import packages
from deploy.release.packages import ROOT
from streaming.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.images.plan import BaseImage, Images

FOLDER: Final = ROOT / "build" / "images"
PROGRAMS: Final = ("mmdebstrap", "buildah")
BUNDLE: Final = "/etc/ssl/certs/ca-certificates.crt"
WITHOUT: Final = ("doc/*", "info/*", "locale/*", "man/*")
SECONDS: Final = 1_000_000_000


def build(directory: Path) -> list[Path]:
    """Build the archives of both images and their lists of materials, and return the paths.

    Raises:
        MissingTool: a program is missing, or the user is not root.
        subprocess.CalledProcessError: a step failed, and has said why.
    """
    _require(PROGRAMS)
    made = images()
    FOLDER.mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    buildah("rm", "--all", quiet=True)  # of a run that was stopped
    origin = _base_image(made.bases[BUILT])
    context = _context(made)
    written = []
    for name in made.variants:
        say(f"{made.tag(name)}: building")
        _bud(made, name, origin, context)
        written += _exported(made, name, directory)
    return written


def say(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def buildah(*words: str | Path, quiet: bool = False) -> None:
    """Run buildah with a store of its own, and print the steps of what it does."""
    (FOLDER / "tmp").mkdir(exist_ok=True)
    store = ["--root", FOLDER / "store", "--runroot", FOLDER / "run", "--storage-driver", "overlay"]
    environment = {**os.environ, "TMPDIR": str(FOLDER / "tmp")}  # its cache for pip, too
    command = [str(word) for word in ("buildah", *store, *words)]
    with (
        (FOLDER / "buildah.log").open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            if "STEP" in line and not quiet:
                say(f"  {line.rstrip()[:110]}")
    if process.returncode:
        said = "".join((FOLDER / "buildah.log").read_text(encoding="utf-8").splitlines(keepends=True)[-15:])
        say(said)
        raise subprocess.CalledProcessError(process.returncode, command[:1] + [str(word) for word in words[:1]])


def _require(programs: Sequence[str]) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingTool(f"images are built by {' and '.join(programs)}: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise MissingTool("images are built by root: the files of an image have other owners")


def _base_image(base: BaseImage) -> str:
    """Make the image that both are built on, unless it is there, and return its name."""
    shared = sorted(set.intersection(*(set(each) for each in base.packages.values())))
    suite = base.image.partition(":")[2].partition("-")[0]
    options = [f"--dpkgopt=path-exclude=/usr/share/{each}" for each in WITHOUT]
    options.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(shared)}", *options, suite]
    tag = f"localhost/isrwatch-base:{suite}-{hashlib.sha256(' '.join(command).encode()).hexdigest()[:12]}"
    folder = FOLDER / "base" / tag.partition(":")[2]
    done = folder / "done"
    if done.exists():
        say(f"base of {base.image}: kept (delete {folder.relative_to(ROOT)} for newer packages)")
        return tag
    say(f"base of {base.image}: {', '.join(shared)} and what they need, from Debian's packages")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, folder / "base.tar"], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    (folder / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n", encoding="utf-8")
    buildah("bud", "--isolation", "chroot", "--tag", tag, folder, quiet=True)
    (folder / "base.tar").unlink()
    done.touch()
    return tag


def _context(made: Images) -> Path:
    """Make the folder that is sent to the builder: the wheels and files of the commit, whatever else is checked out."""
    context = FOLDER / "context"
    shutil.rmtree(context, ignore_errors=True)
    say(f"wheels of {packages.git('rev-parse', '--short=12', 'HEAD')}")
    packages.build(context / "dist")
    files = {file for variant in made.variants.values() for file in variant.files}
    files |= {f"requirements/{name}.txt" for name in made.variants}
    files |= {".dockerignore", f"deploy/docker/{made.bases[BUILT].file}"}
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        packages.git("archive", "--format=tar", f"--output={archive.name}", "HEAD", *sorted(files))
        with tarfile.open(archive.name) as tar:
            tar.extractall(context, filter="data")
    return context


def _bud(made: Images, name: str, origin: str, context: Path) -> None:
    arguments = {"BASE": origin, "REVISION": packages.git("rev-parse", "HEAD")}
    mounts: list[str] = []
    if Path(BUNDLE).is_file():  # this machine's authorities, which a proxy of its network may need
        arguments["SSL_CERT_FILE"] = BUNDLE
        mounts = ["--volume", f"{BUNDLE}:{BUNDLE}:ro"]
    buildah(
        "bud", "--layers", "--isolation", "chroot", "--format", "docker", "--timestamp", str(EPOCH), *mounts,
        *(word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")),
        "--file", context / "deploy" / "docker" / made.bases[BUILT].file, "--target", name,
        "--tag", f"localhost/{made.tag(name)}", context,
    )  # fmt: skip


def _exported(made: Images, name: str, directory: Path) -> list[Path]:
    """Write the archive of an image that is built, and its list of materials."""
    archive = directory / f"{made.file(name)}.oci.tar"
    layout, root = FOLDER / f"layout-{name}", FOLDER / f"root-{name}"
    for folder in (layout, root):
        shutil.rmtree(folder, ignore_errors=True)
    buildah("push", f"localhost/{made.tag(name)}", f"oci:{layout}:image", quiet=True)
    seconds = packages.commit_seconds()
    created = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assemble(layout, archive, Added(made.tag(name), created, _health(made), seconds))
    shutil.rmtree(layout)
    unpacked = unpack(archive, root)
    listed = write_materials(made, name, unpacked, directory / f"{made.file(name)}.oci.cdx.json")
    on_disk = sum(file.lstat().st_size for file in root.rglob("*") if file.is_file() and not file.is_symlink())
    shutil.rmtree(root)
    say(f"{made.tag(name)}: {archive.stat().st_size / 1e6:,.0f} MB to load, {on_disk / 1e6:,.0f} MB of files")
    return [archive, listed]


def _health(made: Images) -> dict[str, Any]:
    """Return HEALTHCHECK as Docker's configuration of an image has it; times are nanoseconds there."""
    check = asdict(made.health)
    tries = check.pop("retries")
    times = {name.title().replace("_", ""): seconds * SECONDS for name, seconds in check.items()}
    return {"Test": ["CMD", *HEALTH], "Retries": tries, **times}
