"""The programs of servers that are in no Python package: built by Go, installed by npm; once, into the cache.

What is built or installed is locked by hash, in ``go.sum`` or ``package-lock.json``, which is in the name of its folder
of the cache: after a change there is another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import MissingTool
from streaming.runtime.folders import cache_folder, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE: Final = Path(__file__).parent
GO_FOLDER: Final = "/usr/local/go/bin"
VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw"
VICTORIA_METRICS: Final = "github.com/VictoriaMetrics/VictoriaMetrics/app"
PATIENCE_SECONDS: Final = 3600.0  # Go compiles kube-apiserver for five minutes on two idle cores


def versitygw() -> Path:
    """Return the program of versitygw, an S3 server on a folder; built by Go if this machine has none yet.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """
    return built("versitygw", VERSITYGW, HERE / "versitygw")


def of_victoria_metrics(name: str) -> Path:
    """Return a program of VictoriaMetrics, ``vmalert`` or the server itself; built by Go if this machine has none yet.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """
    return built(name, f"{VICTORIA_METRICS}/{name}", HERE.parent / "dashboards" / "vmalert")


def built(name: str, package: str, recipe: Path) -> Path:
    """Return a program that Go has built from a package.

    Args:
        name: of the program.
        package: with its ``main``.
        recipe: the folder of the ``go.mod`` and ``go.sum`` that lock its modules.

    Raises:
        MissingTool: there is no Go, or it cannot build it; with its last line.
    """

    def build(draft: Path) -> None:
        _ran(name, [_program("go", name, GO_FOLDER), "build", "-o", draft / name, package], recipe)

    return _made(name, [recipe / "go.mod", recipe / "go.sum"], build) / name


def go_module(name: str, recipe: Path) -> Path:
    """Return the folder of the sources of a Go module; fetched if it is not here.

    Args:
        name: of the module.
        recipe: the folder of the ``go.mod`` and ``go.sum`` that lock it.

    Raises:
        MissingTool: there is no Go, or it cannot fetch it; with its last line.
    """
    output = _ran(name, [_program("go", name, GO_FOLDER), "mod", "download", "-json", name], recipe)
    return Path(json.loads(output)["Dir"])


def azurite() -> Path:
    """Return the script of Azurite, Azure's blob server for tests, which Node runs; installed by npm if it is not here.

    Raises:
        MissingTool: there is no npm, or it cannot install it; with its last line.
    """
    recipe = HERE / "azurite"
    files = [recipe / "package.json", recipe / "package-lock.json"]

    def install(draft: Path) -> None:
        npm = _program("npm", "Azurite")
        for file in files:
            shutil.copy(file, draft)
        _ran("Azurite", [npm, "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"], draft)

    return _made("azurite", files, install) / "node_modules/azurite/dist/src/blob/main.js"


def node() -> Path:
    """Return Node, which runs Azurite.

    Raises:
        MissingTool: it is not on the PATH.
    """
    return _program("node", "Azurite")


def _program(name: str, wanted_by: str, *folders: str) -> Path:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *folders]))
    if found is None:
        raise MissingTool(f"{wanted_by} needs {name}: install it, or put it on the PATH")
    return Path(found)


def _made(name: str, recipe: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, made if it is not there; it appears whole or not at all."""
    key = hashlib.sha256(b"".join(file.read_bytes() for file in recipe)).hexdigest()[:16]
    servers = cache_folder() / "servers"
    final = servers / f"{name}-{key}"
    if not final.exists():
        with exclusive(servers):
            if not final.exists():  # another process may have made it before the lock was free
                draft = servers / f".{name}-{key}"
                shutil.rmtree(draft, ignore_errors=True)  # of one that was killed
                draft.mkdir()
                make(draft)
                draft.rename(final)
    return final


def _ran(name: str, command: Sequence[str | Path], folder: Path) -> str:
    ended = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    if ended.returncode:
        last = (ended.stdout.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise MissingTool(f"{name} cannot be fetched: {Path(command[0]).name} says {last!r}; is there a network?")
    return ended.stdout
