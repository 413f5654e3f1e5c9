"""A container without an engine: a process with mounts, process ids and a host name of its own, an image and volumes.

The file system is an overlay on that of this machine, so Python and its packages are there; what the image has of its
own is put over it, and the Java of this machine is taken away, which the image does not have. Its network, its users
and its limits are those of this machine: neither ports nor memory nor permissions of files are shown by it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import venv
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.images.dockerfile import PYTHON, environment
from deploy.images.plan import images
from deploy.release.packages import lay_out_jars
from streaming.runtime.jars import PACKAGE
from tests.plugins.local_http import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for processes that live for minutes, several on a core."""
STARTING: Final = """\
set -e
echo {name} > /proc/sys/kernel/hostname
mount -t tmpfs tmpfs {scratch}
mkdir {scratch}/upper {scratch}/work {scratch}/root
mount -t overlay overlay -o lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work {scratch}/root
cd {scratch}/root
mount -t proc proc proc
mount --rbind /dev dev
{scratch_folders}
rm -f usr/bin/java
{binds}
{protection}
exec chroot . env --ignore-environment {variables} /bin/sh -c 'cd "$0" && exec "$@"' {folder} {command}
"""


@dataclass(frozen=True)
class Image:
    """What the target ``full`` of ``deploy/docker/Dockerfile`` makes, as far as it can be made here.

    Attributes:
        entrypoint: the first words of a container without a command.
        variables: of every container.
        folder: where containers start.
        mounts: the files of the image, by their path in it.
    """

    entrypoint: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str
    mounts: Mapping[str, Path]


def image(folder: Path, package: Path, packages: Path) -> Image:
    """Make the image.

    Args:
        folder: to make it in.
        package: the wheel of isrwatch.
        packages: the folder of the Python packages that isrwatch needs.
    """
    python = folder / "python"
    venv.create(python, with_pip=False, symlinks=True)
    site = next(python.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text(f"{packages}\n")
    with zipfile.ZipFile(package) as wheel:
        wheel.extractall(site)
    command = python / "bin" / "isrwatch"
    command.write_text(f"#!{PYTHON}/bin/python\nfrom streaming.commands import app\napp(prog_name='isrwatch')\n")
    command.chmod(0o755)
    made = images()
    full = made.variants["full"]
    lay_out_jars(folder / "jars")
    (folder / "jars" / PACKAGE).rename(site / PACKAGE)
    return Image(
        full.entrypoint,
        environment()
        | {"JAVA_TOOL_OPTIONS": LIGHT, "PATH": f"{PYTHON}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"},  # noqa: S108 - its own
        made.data,
        {PYTHON: python} | {f"{made.home}/{name}": ROOT / name for name in full.files},
    )


@dataclass
class Container:
    """One container of an image, running or ended.

    Attributes:
        folder: of the machine, for what it prints; its name is that of the host.
        mounts: its volumes, by their path in it.
        is_read_only: nothing but its volumes can be written.
        protected: the paths of volumes that cannot be written, either.
    """

    folder: Path
    of: Image
    command: Sequence[str]
    variables: Mapping[str, str]
    mounts: Mapping[str, Path] = field(default_factory=dict)
    is_read_only: bool = False
    protected: frozenset[str] = frozenset()

    def start(self) -> None:
        """Start it."""
        scratch = self.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        binds = []
        for target, source in {**self.of.mounts, self.of.folder: self._data(), **self.mounts}.items():
            at = f".{Path(target).resolve()}"  # /var/run is a link to /run, which would lead out of the container
            here, there, parent = (shlex.quote(str(each)) for each in (at, source, Path(at).parent))
            made = f"mkdir -p {here}" if source.is_dir() else f"mkdir -p {parent} && touch {here}"
            protection = f" && mount -o remount,bind,ro {here}" if target in self.protected else ""
            binds.append(f"{made} && mount --bind {there} {here}{protection}")
        variables = shlex.join(f"{name}={value}" for name, value in {**self.of.variables, **self.variables}.items())
        script = STARTING.format(
            name=self.folder.name, scratch=shlex.quote(str(scratch)), binds="\n".join(binds), variables=variables,
            scratch_folders="" if self.is_read_only else "mount -t tmpfs tmpfs tmp\nmount -t tmpfs tmpfs run",
            protection="mount -o remount,ro ." if self.is_read_only else "",
            folder=self.of.folder, command=shlex.join(self.command),
        )  # fmt: skip
        isolated = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL"]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*isolated, "/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def _data(self) -> Path:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        return data

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.folder / "log"

    @property
    def pid(self) -> int:
        """Its first process, as this machine counts."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(wait_until(lambda: children.read_text().split(), what="the container starts")[0])

    @property
    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its first process, as a kubelet does."""
        with suppress(ProcessLookupError, FileNotFoundError):
            if self.ended is None:
                os.kill(self.pid, number)

    def stop(self, seconds: float) -> None:
        """Ask it to end, and end it after a while."""
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
