"""A real YARN on this machine: HDFS, a ResourceManager and NodeManagers, each a JVM of its own.

All listen at 127.0.0.1 only; what containers run gets 127.0.0.1 as the address of its machine.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.stores.hadoop import HadoopServer, configure
from tests.stores.hdfs import JARS, Hdfs
from tests.stores.serving import free_port

JARS_OF_YARN: Final = (*JARS, "test-yarn")
HERE: Final = "127.0.0.1"
SERVER: Final = "org.apache.hadoop.yarn.server"
SCHEDULER: Final = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}
SERVICES: Final = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
RESOURCES: Final = {
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "6",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,LANG,TZ,SPARK_LOCAL_IP",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.resourcemanager.hostname": HERE,
    "yarn.resourcemanager.am.max-attempts": "8",
}


class YarnCluster:
    """HDFS, a ResourceManager, and NodeManagers, of which each may be lost.

    Attributes:
        conf: HADOOP_CONF_DIR of those who submit.
        hdfs: the default file system.
        nodes: the NodeManagers.
        page: address of the pages and the REST API of the ResourceManager.
    """

    def __init__(self, root: Path, nodes: int = 2, expiry_seconds: float = 600.0) -> None:
        """Name them; nothing runs yet.

        Args:
            root: a folder for all of them.
            nodes: number of NodeManagers.
            expiry_seconds: a NodeManager or an application master of which nothing was seen for this long is lost;
                ten minutes are YARN's default.
        """
        self._root, self.hdfs, self.conf = root, Hdfs(root), root / "conf"
        ports = {name: f"{HERE}:{free_port()}" for name in SERVICES}
        self.page = f"http://{ports['webapp.address']}"
        milliseconds = str(round(1000 * expiry_seconds))
        self._site = {
            **RESOURCES,
            **{f"yarn.resourcemanager.{name}": address for name, address in ports.items()},
            "yarn.nm.liveness-monitor.expiry-interval-ms": milliseconds,
            "yarn.am.liveness-monitor.expiry-interval-ms": milliseconds,
        }
        main = f"{SERVER}.resourcemanager.ResourceManager"
        ready = "Transitioned to active state"
        self._manager = HadoopServer(root / "resourcemanager", main, ready, conf=self.conf, jars=JARS_OF_YARN)
        self.nodes = [Node(root, number, self._site) for number in range(nodes)]

    def start(self) -> None:
        """Start all of them.

        Raises:
            MissingTool: a jar, pyspark or Java is missing and cannot be fetched.
        """
        self.hdfs.start()
        configure(self.conf, yarn_site=self._site, capacity_scheduler=SCHEDULER)
        self._manager.start()
        for node in self.nodes:
            node.start(self.conf)

    def containers(self, words: str) -> list[int]:
        """Give the processes of containers whose command line has some words."""
        return [pid for pid in processes_below(self._root) if words in command_of(pid)]

    def close(self) -> None:
        """End all of them, and what they have started."""
        for node in self.nodes:
            node.stop()
        self._manager.stop()
        self.hdfs.close()
        end(processes_below(self._root))


class Node:
    """A NodeManager, with folders of its own, and the containers that it has started."""

    def __init__(self, root: Path, number: int, site: dict[str, str]) -> None:
        self._root, self._conf = root / f"nodemanager-{number}", root / f"conf-{number}"
        self._site = {
            **site,
            "yarn.nodemanager.local-dirs": str(self._root / "local"),
            "yarn.nodemanager.log-dirs": str(self._root / "logs"),
            **{f"yarn.nodemanager.{part}": f"{HERE}:{free_port()}" for part in
               ("address", "localizer.address", "webapp.address", "collector-service.address")},
        }  # fmt: skip
        main, ready = f"{SERVER}.nodemanager.NodeManager", "Registered with ResourceManager as"
        self.server = HadoopServer(self._root, main, ready, conf=self._conf, jars=JARS_OF_YARN)

    def start(self, conf: Path) -> None:
        """Start it with the configuration of the cluster, and its own folders and ports."""
        configure(self._conf, yarn_site=self._site)
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._conf / name).write_bytes((conf / name).read_bytes())
        self.server.start()

    def runs(self, words: str) -> bool:
        """Return whether a container on it has some words in its command line."""
        return any(words in command_of(pid) for pid in processes_below(self._root / "local"))

    def lose(self) -> None:
        """End it with all of its containers, as the loss of its machine would."""
        self.server.kill()
        end(processes_below(self._root / "local"))

    def stop(self) -> None:
        self.server.stop()


def processes_below(folder: Path) -> list[int]:
    """Give the processes that run in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def end(pids: list[int]) -> None:
    """End processes at once."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
