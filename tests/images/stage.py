"""``python -m tests.images.stage ARCHIVES FOLDER``: the images at work, in a network that has nothing but loopback.

Collector and exporter of the slim image, job of the full one, beside a real Kafka; a broker is killed, and the incident
is on the exporter's page. Then the same in one container by ``isrwatch run``. Each has a volume at /data, a /tmp of its
own, and a root file system that is read-only. What was seen is in FOLDER/seen.json. It runs with mounts and a network
of its own: ``unshare --net --mount --fork --kill-child``.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.images.archive import unpack
from deploy.images.plan import images
from deploy.release.packages import ROOT
from deploy.sandbox import Sandbox, plan_cluster, wait_until
from tests.images.containers import Container, unify_control_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.images.archive import Unpacked

PATIENCE_SECONDS: Final = 600.0
PAGE: Final = ROOT / "docs" / "containers.md"
BROKER: Final = "BROKER:9092"
OPTIONS: Final = [
    *("--detach", "--name", "isrwatch", "--read-only", "--tmpfs", "/tmp:exec", "--volume", "isrwatch:/data"),  # noqa: S108 - of a container
    *("--publish", "127.0.0.1:9308:9308"),
]
"""What crun is told in its own way, but for the published port."""
PAGES: Final = "http://127.0.0.1:9308"
CONFIGURATION: Final = """\
[cluster]
name = "prod"
bootstrap_servers = "{servers}"

[bus]
directory = "/data/bus"

[tables]
directory = "/data/tables"

[job]
checkpoint = "/data/checkpoint"
"""


class Stage:
    """What is there for both acts: the images, a cluster, and what was seen."""

    def __init__(self, archives: Path, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.seen: dict[str, Any] = {"interfaces": sorted(each.name for each in _interfaces())}
        made = images()
        self.images = {
            name: unpack(archives / f"{made.file(name)}.oci.tar", folder / "roots" / name) for name in made.variants
        }
        self.seen["digests"] = {name: image.digest for name, image in self.images.items()}
        self.kafka = stack.enter_context(Sandbox(plan_cluster(brokers=3, controllers=1)))
        self.kafka.admin.create_topic("orders", partitions=6, replication_factor=3)

    def volume(self, name: str) -> Path:
        """Make a volume, as a platform gives it to a group: any user of group 0 can write it."""
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True)
        folder.chmod(0o775)
        return folder

    def container(self, name: str, variant: str, words: str, volumes: dict[str, Path]) -> Container:
        """Start a container that ends with the stage."""
        made = Container(self.folder / "containers" / name, self.images[variant], words.split(), volumes)
        made.start()
        self.stack.callback(made.kill)
        return made


def main() -> int:
    archives, folder = map(Path, sys.argv[1:])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    unify_control_groups()
    with ExitStack() as stack:
        stage = Stage(archives, folder, stack)
        try:
            commands(stage)
            before = {name: written(image) for name, image in stage.images.items()}
            three_containers(stage)
            one_container(stage)
            stage.seen["written"] = [name for name, image in stage.images.items() if written(image) != before[name]]
        finally:
            (folder / "seen.json").write_text(json.dumps(stage.seen, indent=1))
    return 0


def commands(stage: Stage) -> None:
    """Run commands that end by themselves; mount points are made by the first container of an image."""
    volumes = {"/data": stage.volume("commands"), "/etc/isrwatch": configuration(stage)}
    ran = {}
    for variant, image in stage.images.items():
        for words in ("--version", "job --help", "job", "collect --help", "export --help", "doctor"):
            if (variant, words) != ("full", "job"):
                name = f"{variant}-{words.replace(' ', '').replace('-', '')}"
                ran[f"{variant} {words}"] = Container(
                    stage.folder / "containers" / name, image, words.split(), volumes
                ).run()
    stage.seen["commands"] = ran


def three_containers(stage: Stage) -> None:
    """Start a container for each program, kill a broker, and look at the page."""
    volumes = {"/data": stage.volume("three"), "/etc/isrwatch": configuration(stage)}
    began = time.monotonic()
    made = {
        name: stage.container(name, variant, name, volumes)
        for name, variant in (("collect", "slim"), ("job", "full"), ("export", "slim"))
    }
    seen = stage.seen["three"] = incident_of(stage, list(made.values()), 3, began)
    seen["health"] = {name: each.health() for name, each in made.items()}
    seen["exit codes"] = {name: made[name].stop() for name in ("export", "job", "collect")}
    seen["data"] = owners(volumes["/data"])
    seen["logs"] = {name: each.log.read_text(errors="replace")[-1500:] for name, each in made.items()}


def one_container(stage: Stage) -> None:
    """Do the same with everything in one container."""
    stage.kafka.heal()
    volumes = {"/data": stage.volume("one")}
    began = time.monotonic()
    tag, words = in_one_container()
    (variant,) = [name for name in stage.images if images().tag(name) == tag]
    made = stage.container("run", variant, words.replace(BROKER, stage.kafka.bootstrap_servers), volumes)
    seen = stage.seen["one"] = incident_of(stage, [made], 2, began)
    seen["health"] = {"run": made.health()}
    seen["exit codes"] = {"run": made.stop()}
    seen["data"] = owners(volumes["/data"])
    seen["logs"] = {"run": made.log.read_text(errors="replace")[-1500:]}


def in_one_container() -> tuple[str, str]:
    """Return the image of the page's ``docker run``, and what follows it."""
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", "")
    ((options, tag, words),) = re.findall(r"^docker run (.*?) (isrwatch:\d\S+) (.*)$", text, re.MULTILINE)
    assert shlex.split(options) == OPTIONS
    return tag, words


def incident_of(stage: Stage, running: list[Container], broker: int, began: float) -> dict[str, Any]:
    """Wait until the exporter has the cluster, kill a broker, and return what the page says, with the seconds."""
    until(lambda: partitions() >= 6, "the first report is on the page", running)
    ready = time.monotonic()
    stage.kafka.kill(broker)
    until(lambda: bool(answer("/api/v1/incidents")["incidents"]), "the incident is on the page", running)
    shown = time.monotonic()
    return {
        "ready seconds": round(ready - began, 1),
        "incident seconds": round(shown - ready, 1),
        "page": fetched("/incidents").decode(),
        "incidents": answer("/api/v1/incidents")["incidents"],
    }


def until(condition: Callable[[], bool], what: str, running: list[Container]) -> None:
    """Wait for something, as long as the containers run."""

    def is_so() -> bool:
        for each in running:
            if each.ended is not None:
                raise AssertionError(f"{each.folder.name} has ended with {each.ended}: {each.log.read_text()[-3000:]}")
        try:
            return condition()
        except (OSError, KeyError):
            return False

    try:
        wait_until(is_so, what, seconds=PATIENCE_SECONDS)
    except Exception:
        for each in running:
            print(f"--- {each.folder.name}\n{each.log.read_text(errors='replace')[-3000:]}", flush=True)
        raise


def partitions() -> int:
    """Return how many partitions the exporter has."""
    return len(answer("/api/v1/partitions")["partitions"])


def answer(path: str) -> dict[str, Any]:
    return dict(json.loads(fetched(path)))


def fetched(path: str) -> bytes:
    with urllib.request.urlopen(PAGES + path, timeout=30) as response:  # noqa: S310 - our own 127.0.0.1
        return bytes(response.read())


def configuration(stage: Stage) -> Path:
    """Write the configuration into a folder that is mounted: a runtime leaves its mount points in the root."""
    folder = stage.folder / "etc"
    folder.mkdir(exist_ok=True)
    (folder / "isrwatch.toml").write_text(CONFIGURATION.format(servers=stage.kafka.bootstrap_servers))
    return folder


def written(image: Unpacked) -> list[tuple[str, int, int, int]]:
    """List the files of an image with size, time and owner: what a write would change."""
    return sorted(
        (str(path), stat.st_size if path.is_file() else 0, stat.st_mtime_ns, stat.st_uid)
        for path in image.root.rglob("*")
        for stat in [path.lstat()]
    )


def owners(folder: Path) -> dict[str, list[int]]:
    """Return user and group of what is in a volume."""
    return {path.name: [path.stat().st_uid, path.stat().st_gid] for path in sorted(folder.iterdir())}


def _interfaces() -> Iterator[Path]:
    return (Path(line.split(":")[0].strip()) for line in Path("/proc/net/dev").read_text().splitlines()[2:])


if __name__ == "__main__":
    sys.exit(main())
