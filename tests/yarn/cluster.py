"""A real YARN on this machine: HDFS, a ResourceManager and NodeManagers, each a JVM of its own.

All listen at 127.0.0.1 only; what containers run gets 127.0.0.1 as the address of its machine.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

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
ANY_PORT: Final = ("localizer.address", "webapp.address", "collector-service.address")
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
            expiry_seconds: a NodeManager of which nothing was seen for this long is lost; YARN's default is 600.
        """
        self._root, self.hdfs, self.conf, self.page = root, Hdfs(root), root / "conf", ""
        self._expiry = str(round(1000 * expiry_seconds))
        main = f"{SERVER}.resourcemanager.ResourceManager"
        ready = "Transitioned to active state"
        self._manager = HadoopServer(root / "resourcemanager", main, ready, conf=self.conf, jars=JARS_OF_YARN)
        self.nodes = [Node(root, number) for number in range(nodes)]

    def start(self) -> None:
        """Start all of them.

        Raises:
            MissingTool: a jar, pyspark or Java is missing and cannot be fetched.
        """
        self.hdfs.start()
        ports = {name: f"{HERE}:{free_port()}" for name in SERVICES}
        self.page = f"http://{ports['webapp.address']}"
        site = {**RESOURCES, **{f"yarn.resourcemanager.{name}": address for name, address in ports.items()}}
        site["yarn.nm.liveness-monitor.expiry-interval-ms"] = self._expiry
        configure(self.conf, yarn_site=site, capacity_scheduler=SCHEDULER)
        self._manager.start()
        for node in self.nodes:
            node.configure(site, self.conf)
            node.server.start()

    def executors(self) -> list[int]:
        """Give the Java processes of executors."""
        return self._containers("java", "YarnCoarseGrainedExecutorBackend")

    def masters(self) -> list[int]:
        """Give the Java processes of application masters; in cluster mode they are those of the drivers."""
        return self._containers("java", "yarn.ApplicationMaster")

    def drivers(self) -> list[int]:
        """Give the Python processes of drivers, in cluster mode."""
        return self._containers("python", "main.py")

    def _containers(self, program: str, words: str) -> list[int]:
        return [pid for pid in processes_below(self._root) if is_of(pid, program, words)]

    def applications(self) -> list[dict[str, Any]]:
        """Return what the ResourceManager says of all applications, the newest first."""
        url = f"{self.page}/ws/v1/cluster/apps"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own 127.0.0.1
            found = json.load(answer)["apps"] or {"app": []}
        return sorted(found["app"], key=lambda each: str(each["id"]), reverse=True)

    def logs(self) -> str:
        """Return the ends of what containers wrote."""
        files = sorted(self._root.glob("nodemanager-*/logs/*/*/std*"))
        ends = (f"--- {file.parent.name} {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)
        return "\n".join(ends)

    def close(self) -> None:
        """End all of them, and what they have started."""
        for node in self.nodes:
            node.stop()
        self._manager.stop()
        self.hdfs.close()
        end(processes_below(self._root))


class Node:
    """A NodeManager, with folders of its own, and the containers that it has started."""

    def __init__(self, root: Path, number: int) -> None:
        self._root, self._conf = root / f"nodemanager-{number}", root / f"conf-{number}"
        main, ready = f"{SERVER}.nodemanager.NodeManager", "Registered with ResourceManager as"
        self.server = HadoopServer(self._root, main, ready, conf=self._conf, jars=JARS_OF_YARN)

    def configure(self, site: dict[str, str], conf: Path) -> None:
        """Write the configuration of the cluster with its own folders, and the port that is its name, which stays."""
        own = {
            "yarn.nodemanager.local-dirs": str(self._root / "local"),
            "yarn.nodemanager.log-dirs": str(self._root / "logs"),
            "yarn.nodemanager.address": f"{HERE}:{free_port()}",
            **dict.fromkeys((f"yarn.nodemanager.{part}" for part in ANY_PORT), f"{HERE}:0"),
        }
        configure(self._conf, yarn_site=site | own)
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._conf / name).write_bytes((conf / name).read_bytes())

    def runs(self, pids: list[int]) -> bool:
        """Return whether one of some processes is in a container on it."""
        return not set(pids).isdisjoint(processes_below(self._root / "local"))

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


def is_of(pid: int, program: str, words: str) -> bool:
    """Return whether a process is of a program, and has some words in its command line."""
    with suppress(OSError):
        process = Path(f"/proc/{pid}")
        name, line = (process / "comm").read_text(), (process / "cmdline").read_bytes()
        return name.startswith(program) and words.encode() in line
    return False


def end(pids: list[int]) -> None:
    """End processes at once."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
