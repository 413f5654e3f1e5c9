"""Containers of our images, started by crun: an OCI runtime, as Docker, Podman and Kubernetes start them.

Each has a root file system that is read-only, a user that the image does not know, in group 0, no capability, and
mounts, processes and a host name of its own. Its network is that of the process that starts it. It has no control
group: limits of memory and processors are not shown by it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.images.archive import Unpacked

UID: Final = 12345
NAMESPACES: Final = ("pid", "ipc", "uts", "mount")
MASKED: Final = ("/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug")
STATE: Final = "state"
DATA: Final = "/data"
"""The only volume that can be written."""


def unify_control_groups() -> None:
    """Let crun see what it knows, in the mounts of this process alone: it refuses a machine with both kinds of them."""
    groups = Path("/sys/fs/cgroup")
    if not (groups / "cgroup.controllers").exists():
        subprocess.run(["umount", "--recursive", groups], check=True)
        subprocess.run(["mount", "-t", "cgroup2", "none", groups], check=True)


@dataclass
class Container:
    """One container, running or ended.

    Attributes:
        folder: for what it prints and its bundle; its name is that of the container.
        words: after those of the image's entry point.
        volumes: folders, by their path in it.
    """

    folder: Path
    image: Unpacked
    words: Sequence[str]
    volumes: Mapping[str, Path]
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start it."""
        self.folder.mkdir(parents=True)
        (self.folder / "config.json").write_text(json.dumps(self._bundle(), indent=1))
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._crun(), "run", "--bundle", self.folder, self.folder.name],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.folder / "log"

    @property
    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def run(self) -> tuple[int, str]:
        """Start it, wait for its end, and return its exit code and what it printed."""
        self.start()
        return self._process.wait(300), self.log.read_text(errors="replace")

    def execute(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a program in it, and return its exit code and what it printed."""
        ended = subprocess.run(
            [*self._crun(), "exec", "--user", f"{UID}:0", self.folder.name, *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr

    def health(self) -> tuple[int, str]:
        """Ask it as HEALTHCHECK of its image does."""
        kind, *words = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.execute(words)

    def stop(self, seconds: float = 120.0) -> int:
        """Ask its first process to end, and return its exit code; it fails after so many seconds."""
        subprocess.run([*self._crun(), "kill", self.folder.name, "TERM"], check=True)
        return self._process.wait(seconds)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.ended is None:
            subprocess.run([*self._crun(), "kill", self.folder.name, "KILL"], check=False, capture_output=True)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _crun(self) -> list[str | Path]:
        return ["crun", "--root", self.folder.parent / STATE, "--cgroup-manager=disabled"]

    def _bundle(self) -> dict[str, Any]:
        """Return what the runtime is told: the configuration of the image, and the limits above."""
        config = self.image.config
        variables = dict(each.split("=", 1) for each in config["Env"]) | dict(self.variables)
        mounts = [
            _mount("/proc", "proc"),
            _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),  # noqa: S108 - its own
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),  # noqa: S108 - its own
            *(
                {
                    "destination": target,
                    "source": str(source),
                    "type": "bind",
                    "options": ["bind", "rw" if target == DATA else "ro"],
                }
                for target, source in self.volumes.items()
            ),
        ]
        return {
            "ociVersion": "1.0.0",
            "hostname": self.folder.name,
            "root": {"path": str(self.image.root), "readonly": True},
            "process": {
                "args": [*config["Entrypoint"], *(self.words or config["Cmd"])],
                "cwd": config["WorkingDir"],
                "env": [f"{name}={value}" for name, value in variables.items()],
                "user": {"uid": UID, "gid": 0},
                "capabilities": {},
                "noNewPrivileges": True,
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 4096}],
            },
            "mounts": mounts,
            "linux": {"namespaces": [{"type": each} for each in NAMESPACES], "maskedPaths": list(MASKED)},
        }


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, **({"options": list(options)} if options else {})}
