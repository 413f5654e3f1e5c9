"""A machine of its own with a real systemd as its first process, in namespaces of this machine (root, Linux).

The file system is an overlay on a fresh Debian, in which isrwatch is installed as a user would, in /opt/isrwatch; its
packages are those of this Python. The network and the kernel are this machine's: neither ports nor limits of memory are
shown by it. systemd creates its control groups below one of ours, of version 2 without controllers.
"""

from __future__ import annotations

import compileall
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import MissingTool
from streaming.runtime.folders import cache_folder, exclusive
from tests.plugins.local_http import wait_until

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

ROOT: Final = Path(__file__).parents[2]
SUITES: Final = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The release of Debian whose Python has the packages of this one."""
INSTALLED: Final = "systemd,libnss-systemd,dbus,python3,procps"
GROUPS: Final = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
"""Where control groups of version 2 are mounted, on a machine with both versions or with that one alone."""
ENTERING: Final = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
STARTING: Final = """\
set -e
mount -t overlay overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work {folder}/root
cd {folder}/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for each in null zero full random urandom tty; do touch dev/$each; mount --bind /dev/$each dev/$each; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
for each in {binds}; do mkdir -p .$each; mount --bind -o ro $each .$each; done
mkdir -p before
pivot_root . before
umount -l /before
exec env --ignore-environment container=test PATH=/usr/bin:/usr/sbin /lib/systemd/systemd --unit=multi-user.target
"""


class Machine:
    """The machine, from its start until it is left."""

    def __init__(self, folder: Path, package: Path) -> None:
        """Install ``package``, the zip of isrwatch, on a machine that does not run yet."""
        self._folder, self._lower = folder, debian()
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)
        self._packages = next(path for path in map(Path, sys.path) if (path / "pyspark").is_dir()).resolve()
        self._installed(package)
        self._group = (
            next(Path(each) for each in GROUPS if Path(each, "cgroup.procs").exists()) / f"isrwatch-{os.getpid()}"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._systemd = 0

    def _installed(self, package: Path) -> None:
        """Make what ``python3 -m venv`` and pip would, with the packages of this Python."""
        home = self._folder / "upper/opt/isrwatch"
        site = home / f"lib/python3.{sys.version_info.minor}/site-packages"
        site.mkdir(parents=True)
        (home / "bin").mkdir()
        (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
        (home / "bin/python").symlink_to("/usr/bin/python3")
        (site / "packages.pth").write_text(f"{self._packages}\n")
        with zipfile.ZipFile(package) as files:
            files.extractall(site)
        compileall.compile_dir(site, quiet=1, stripdir=str(self._folder / "upper"))  # as pip does
        (self._folder / "upper/etc").mkdir()
        (self._folder / "upper/etc/hosts").write_text("127.0.0.1 localhost\n")  # not the name of the machine
        program = self._folder / "upper/usr/local/bin/isrwatch"
        program.parent.mkdir(parents=True)
        program.write_text("#!/opt/isrwatch/bin/python\nimport isrwatch\nisrwatch.main()\n")
        program.chmod(0o755)

    def __enter__(self) -> Self:
        self._group.mkdir(exist_ok=True)
        binds = [self._packages, ROOT]
        script = STARTING.format(lower=self._lower, folder=self._folder, binds=" ".join(map(str, binds)))
        kinds = ("--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child", "--propagation", "private")
        with (self._folder / "systemd.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", ENTERING, self._group, "unshare", *kinds, "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            wait_until(self._is_up)
        except BaseException:
            self.close()
            raise
        return self

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "systemd.log").read_text()
        with suppress(OSError, ValueError):
            self._systemd = int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text())
            state = self.ran("systemctl", "is-system-running", fails=True)[1].strip()
            return state in {"running", "degraded"}  # of modules of the kernel it can load none
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the machine."""
        self.close()

    def close(self) -> None:
        """End every process of the machine: none outlives the first one of its namespace."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for _ in range(50):
            with suppress(OSError):
                for each in sorted(self._group.rglob("*/"), reverse=True):
                    each.rmdir()
                self._group.rmdir()
                break
            time.sleep(0.1)

    def ran(self, *command: str, fails: bool = False) -> tuple[int, str]:
        """Run a command as root of the machine; return its exit code and what it printed. It must not fail."""
        kinds = ("--mount", "--pid", "--ipc", "--uts", "--cgroup", "--root", "--wdns=/")
        clean = ("env", "--ignore-environment", "PATH=/usr/local/bin:/usr/bin:/usr/sbin", "SYSTEMD_PAGER=")
        ended = subprocess.run(
            ["nsenter", f"--target={self._systemd}", *kinds, *clean, *command],
            capture_output=True, text=True, errors="replace", check=False, timeout=300,
        )  # fmt: skip
        assert fails or ended.returncode == 0, (command, ended.stdout, ended.stderr)
        return ended.returncode, ended.stdout + ended.stderr

    def shell(self, script: str) -> str:
        """Run lines of a shell, in the checkout, as its documentation shows them."""
        return self.ran("sh", "-ec", f"cd {ROOT}\n{script}")[1]

    def python(self, *arguments: str) -> str:
        """Run a module of the tests as the user of the services."""
        return self.shell(
            f"PYTHONPATH={ROOT} runuser -u isrwatch -- /opt/isrwatch/bin/python -m {shlex.join(arguments)}"
        )

    def shown(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.ran("systemctl", "show", "--value", f"--property={name}", unit)[1].strip()

    def log(self, unit: str) -> str:
        """Return what a unit has printed."""
        return self.ran("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")[1]


def debian() -> Path:
    """Return the folder of a fresh Debian with systemd and the Python that the packages of this one are for.

    Raises:
        MissingTool: it cannot be made here.
    """
    suite = SUITES.get(sys.version_info[:2])
    if suite is None:
        raise MissingTool(f"no Debian has Python {sys.version_info.major}.{sys.version_info.minor}; use 3.11 or 3.13")
    final = cache_folder() / "servers" / f"debian-{suite}-{INSTALLED.replace(',', '-')}"
    if not final.exists():
        with exclusive(final.parent):
            if not final.exists():
                draft = final.with_name(f".{final.name}")
                shutil.rmtree(draft, ignore_errors=True)
                bootstrapped(draft, suite)
                draft.rename(final)
    return final


def bootstrapped(folder: Path, suite: str) -> None:
    """Make a Debian, with a tool that is installed if it is not here."""
    if shutil.which("mmdebstrap") is None:
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "mmdebstrap"]):
            subprocess.run(command, check=True, capture_output=True)
    made = subprocess.run(
        ["mmdebstrap", "--variant=minbase", f"--include={INSTALLED}", suite, str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise MissingTool(f"mmdebstrap cannot make a Debian: {made.stderr.splitlines()[-1]}")
