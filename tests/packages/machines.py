"""Empty machines: a fresh root of Debian packages, or a folder of this machine that sees nothing of the checkout.

Both share the network of this machine, so a sandbox on the loopback address is their cluster. A root has ``python3``
with its venv module, and the certificates and name servers of this machine; nothing else is brought along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PASSED_ON: Final = (
    "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_DEFAULT_TIMEOUT",
)  # fmt: skip
IN_ROOT: Final = (
    'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/dist" '
    '&& mount --bind "$2" "$0/pip" && shift 2 && exec chroot "$0" "$@"'
)


@dataclass
class Machine:
    """An empty machine.

    Attributes:
        name: what it is.
        python: its Python.
        home: the folder in which commands run, as this machine sees it.
        inside: the same folder, as a command sees it.
        dist: where the packages lie, as a command sees it.
        prefix: what puts a command inside.
        variables: its environment.
    """

    name: str
    python: str
    home: Path
    inside: str
    dist: str
    prefix: Sequence[str | Path] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str | Path, without_network: bool = False) -> list[str]:
        """Return a command as this machine starts it."""
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if without_network else []
        shell = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.inside]
        return [str(word) for word in (*apart, *self.prefix, "env", "-i", *variables, *shell, *words)]

    def run(self, *words: str | Path, fails: bool = False, seconds: float = 900) -> str:
        """Run a command to its end, and return what it printed; its failure is one of the test, unless it has to."""
        ran = subprocess.run(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert (ran.returncode != 0) is fails, f"{words} ended with {ran.returncode}: {ran.stdout[-3000:]}"
        return ran.stdout

    @contextmanager
    def running(self, *words: str | Path, **how: Any) -> Iterator[Program]:
        """Run a command for the length of a block; it is stopped as Ctrl-C stops it, and has to end by itself."""
        log = self.home / f"{Path(words[1]).name}-{len(list(self.home.glob('*.log')))}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command(*words, **how), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        program = Program(process, log)
        try:
            yield program
        finally:
            process.send_signal(2)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def install(self, what: str, folder: str = "isrwatch") -> float:
        """Install into a virtual environment of its own, and return the seconds that it took."""
        began = time.monotonic()
        self.run(self.python, "-m", "venv", folder)
        self.run(f"{folder}/bin/pip", "install", "--quiet", "--find-links", self.dist, what)
        return time.monotonic() - began

    def installed(self, folder: str = "isrwatch") -> set[str]:
        """Return the names of the distributions in a virtual environment."""
        listed = self.run(f"{folder}/bin/pip", "list", "--format", "freeze")
        return {line.partition("==")[0].lower().replace("_", "-") for line in listed.splitlines()}

    def megabytes(self, folder: str = "isrwatch") -> int:
        """Return how large a virtual environment is, without pip and what Python compiles."""
        without = [f"--exclude={name}" for name in ("pip", "pip-*", "__pycache__")]
        used = subprocess.run(
            ["du", "--summarize", "--block-size=1M", *without, self.home / folder],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(used.stdout.split()[0])


@dataclass
class Program:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return what it has printed."""
        return self.log.read_text(errors="replace")

    def until(self, words: str, seconds: float = 300) -> None:
        """Wait until it has printed some words; it may not end before."""
        deadline = time.monotonic() + seconds
        while words not in self.said():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"no {words!r} within {seconds:.0f} s: {self.said()[-3000:]}"
            time.sleep(0.2)


def variables(home: str, certificates: Path) -> dict[str, str]:
    """Return the environment of a machine: ports that nothing else has, and how this one reaches a network."""
    ports = {f"ISRWATCH_{part}__LISTEN": f"127.0.0.1:{free_port()}" for part in ("COLLECT", "JOB", "EXPORT")}
    network = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    trust = {"PIP_CERT": str(certificates), "SSL_CERT_FILE": str(certificates)} if certificates.exists() else {}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "LANG": "C.UTF-8"}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, **network, **trust, **quiet, **ports}


@contextmanager
def folder(dist: Path, cache: Path, python: str = sys.executable) -> Iterator[Machine]:
    """Give a folder of this machine as an empty one, for a Python that is here."""
    with TemporaryDirectory(prefix="isrwatch-machine-") as home:
        given = variables(home, CERTIFICATES) | {"PIP_CACHE_DIR": str(cache), "PIP_NO_COMPILE": "1"}
        # The Python of a virtual environment would bring its packages along.
        real = str(Path(python).resolve())
        yield Machine("this machine", real, Path(home), home, str(dist), variables=given)


@contextmanager
def root(suite: str, dist: Path, cache: Path, *packages: str) -> Iterator[Machine]:
    """Make a root of a release of Debian, and delete it afterwards.

    The mirror may be an image of an earlier day, so how old its lists are is not asked.
    """
    install_tools("mmdebstrap", "unshare")
    with TemporaryDirectory(prefix=f"isrwatch-{suite}-") as place:
        include = ",".join(("ca-certificates", "python3", "python3-venv", *packages))
        made = subprocess.run(
            ["mmdebstrap", "--variant=minbase", "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"',
             f"--include={include}", suite, place],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        for name in ("dist", "pip"):
            Path(place, name).mkdir()
        for path in (CERTIFICATES, Path("/etc/resolv.conf"), Path("/etc/hosts")):
            if path.exists():
                shutil.copyfile(path, Path(place, path.relative_to("/")))
        prefix = ["unshare", "--mount", "sh", "-c", IN_ROOT, place, dist, cache]
        given = variables("/root", CERTIFICATES) | {"PIP_CACHE_DIR": "/pip"}
        yield Machine(f"Debian {suite}", "python3", Path(place, "root"), "/root", "/dist", prefix, given)


def install_tools(*names: str) -> None:
    """Install the Debian packages of programs that are not here."""
    if missing := [name for name in names if shutil.which(name) is None]:
        quiet: Mapping[str, str] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet, stdout=subprocess.DEVNULL)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        subprocess.run(command, check=True, env=quiet, stdout=subprocess.DEVNULL)


def interpreter(version: str) -> str | None:
    """Return a Python of this machine of a version such as 3.12: on the path, or of pyenv; None if there is none."""
    places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    for place in places:
        if place is not None and subprocess.run([place, "--version"], capture_output=True, check=False).returncode == 0:
            return str(place)
    return None
