"""``Sandbox``: a cluster of real nodes in one folder. Depends on processes, ports and Kafka's own tools."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from deploy.sandbox.admin import Admin
from deploy.sandbox.dump import DumpedRecord, dump_metadata_log, dump_newest_snapshot
from deploy.sandbox.node import Node
from deploy.sandbox.plan import SINCE_4, Plan, formatted, random_id, write_plan
from deploy.sandbox.properties import HOST, zookeeper_properties
from deploy.sandbox.proxy import ReplicationProxy
from deploy.sandbox.waiting import wait_until
from streaming.errors import ConfigurationError
from streaming.runtime import class_archive
from streaming.runtime.jars import JMX_AGENT, jar_paths
from streaming.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType


_ZOOKEEPER: Final = 0  # no broker has this id
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true")
_SERVERS: Final = "--bootstrap-server"


class Sandbox:
    """A cluster on 127.0.0.1.

    Without a ``root`` its folder is temporary and deleted at the end. As a context manager it starts the cluster, waits
    until it is ready, and leaves no process behind, even when this process is killed. ``launcher`` returns the command
    in front of a node's own: how it gets into a network of its own.
    """

    def __init__(
        self, plan: Plan, root: Path | None = None, launcher: Callable[[int], Sequence[str]] | None = None
    ) -> None:
        self.plan = plan
        self._launcher = launcher or (lambda _: ())
        self.root = root.absolute() if root else Path(tempfile.mkdtemp(prefix="isrwatch-sandbox-"))
        self._temporary = root is None
        self._watchdog: Watchdog | None = None
        self._proxy: ReplicationProxy | None = None
        self._archive: Path | None = None
        self._draft = self.root / "classes.jsa"
        self._nodes = {
            node: Node(node, self.root / f"node-{node}", ports.client, host=ports.host)
            for node, ports in plan.ports().items()
        }
        if plan.zookeeper is not None:  # started first
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            zookeeper = Node(_ZOOKEEPER, self.root / "zookeeper", plan.zookeeper, main=main)
            self._nodes = {_ZOOKEEPER: zookeeper, **self._nodes}

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id; with ZooKeeper the first broker that starts has chosen it."""
        return self.plan.cluster_id if self.plan.zookeeper is None else self.admin.cluster_id()

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, running or not."""
        return tuple(self.plan.brokers)

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """The ids of all controllers, running or not."""
        return tuple(self.plan.controllers)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return ",".join(f"{ports.host}:{ports.client}" for ports in self.plan.brokers.values())

    @property
    def controller_addresses(self) -> dict[str, str]:
        """The listener of each controller, as ``[cluster.controllers.addresses]`` of isrwatch."""
        return {str(node): f"{ports.host}:{ports.client}" for node, ports in self.plan.controllers.items()}

    @property
    def proxy(self) -> ReplicationProxy:
        """The proxy between the brokers of a running sandbox.

        Raises:
            ConfigurationError: it was planned without one.
        """
        if self._proxy is None:
            raise ConfigurationError("this sandbox has no proxy between its brokers: plan it with proxy=True")
        return self._proxy

    @cached_property
    def admin(self) -> Admin:
        """The cluster's administrator."""
        return Admin(self.bootstrap_servers)

    def metrics_url(self, broker: int) -> str:
        """Return the URL of a broker's JMX exporter."""
        return f"http://{HOST}:{self.plan.brokers[broker].metrics}/metrics"

    def __enter__(self) -> Self:
        self._watchdog = Watchdog(self.root, temporary=self._temporary)
        try:
            self.up()
        except BaseException:
            self._leave(failed=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def up(self) -> None:
        """Format the nodes if necessary, start those that do not run, and wait until all brokers are registered."""
        if not formatted(self.root):
            self._format()
        if self.plan.proxied() and self._proxy is None:
            self._proxy = ReplicationProxy(self.plan.proxied())
        for node in self._nodes:
            self.launch(node)
        for node in self._nodes:
            self._wait_ready(node)

    def heal(self) -> None:
        """Remove all faults of links and nodes, and wait until all brokers are registered."""
        if self._proxy is not None:
            self._proxy.release_all()
        for node in self._nodes:
            self.resume(node)
        self.up()

    def down(self) -> None:
        """Kill every node."""
        for node in self._nodes.values():
            node.signal(signal.SIGKILL)
        for node in self._nodes.values():
            node.wait_ended()

    def start(self, node: int) -> None:
        """Start a node and wait until it is ready; a broker is registered and unfenced then."""
        self.launch(node)
        self._wait_ready(node)

    def kill(self, node: int) -> None:
        """Send SIGKILL and wait for the end: an unclean shutdown."""
        self._node(node).signal(signal.SIGKILL)
        self._node(node).wait_ended()

    def stop(self, node: int) -> None:
        """Send SIGTERM and wait for the end: a controlled shutdown."""
        self._node(node).signal(signal.SIGTERM)
        self._node(node).wait_ended()

    def pause(self, node: int) -> None:
        """Send SIGSTOP and wait until the process hangs; its connections stay open."""
        self._node(node).signal(signal.SIGSTOP)
        self._node(node).wait_stopped()

    def send(self, node: int, number: signal.Signals) -> None:
        """Send any signal, and wait for nothing."""
        self._node(node).signal(number)

    def resume(self, node: int) -> None:
        """Send SIGCONT: the process continues."""
        self._node(node).signal(signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Stop and start again."""
        self.stop(node)
        self.start(node)

    def pid(self, node: int) -> int | None:
        """Return the pid of a node that is running or paused, else None."""
        return self._node(node).pid

    def state(self, node: int) -> str:
        """Return the state of a node: running, frozen or not running."""
        return self._node(node).state

    def log(self, node: int) -> Path:
        """Return the path of a node's log file."""
        return self._node(node).log

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's own tools on the cluster, and return what it prints; ``name`` is its class.

        ``--bootstrap-server`` comes last, unless it is one of the arguments: some tools have it before a subcommand.

        Raises:
            ConfigurationError: it failed.
        """
        done = subprocess.run(self.tool_command(name, *arguments), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ConfigurationError(f"{name} failed:", (done.stderr or done.stdout).strip())
        return done.stdout

    def tool_command(self, name: str, *arguments: str) -> list[str | Path]:
        """Return the command that :meth:`run_tool` runs."""
        servers = [] if _SERVERS in arguments else [_SERVERS, self.bootstrap_servers]
        return [*self._java(96), name, *arguments, *servers]

    def read_metadata_log(self, controller: int | None = None) -> bytes:
        """Return the bytes of all segments of the metadata log of a controller; by default the first one's."""
        segments = sorted(
            (self._node(controller or self.controller_ids[0]).data / "__cluster_metadata-0").glob("*.log")
        )
        return b"".join(segment.read_bytes() for segment in segments)

    def dump_metadata_log(self, controller: int | None = None) -> list[DumpedRecord]:
        """Decode the metadata log of a controller, by default the first one's, with Kafka's own tool."""
        return dump_metadata_log(self._dump_tool(), self._node(controller or self.controller_ids[0]).data)

    def dump_newest_snapshot(self, controller: int) -> tuple[int, list[DumpedRecord]]:
        """Decode the newest KRaft snapshot of a controller, and return the offset before which it ends, too."""
        return dump_newest_snapshot(self._dump_tool(), self._node(controller).data)

    def _dump_tool(self) -> list[str | Path]:
        package = "org.apache.kafka.tools" if self.plan.version in SINCE_4 else "kafka.tools"  # moved in 4.0
        return [*self._java(128), f"{package}.DumpLogSegments"]

    def _node(self, node: int) -> Node:
        if node not in self._nodes:
            raise ConfigurationError(f"there is no node {node}; there are {', '.join(map(str, self._nodes))}")
        return self._nodes[node]

    def _java(self, heap_megabytes: int, *, record: bool = False) -> list[str | Path]:
        java, jars = find_java(), jar_paths(self.plan.jars)
        archive = class_archive.archive_path("kafka", java, jars)
        if record and not archive.exists():
            self._archive = archive
        shared = class_archive.recording(self._draft) if record and self._archive else class_archive.using(archive)
        return [java.executable, f"-Xmx{heap_megabytes}m", *_JVM, *shared, "-cp", ":".join(map(str, jars))]

    def _keep_classes(self) -> None:
        """Stop the broker that records Kafka's classes cleanly, and keep its archive."""
        broker = self.broker_ids[0]
        if self._archive is None or self.state(broker) != "running":
            return
        with suppress(TimeoutError):
            self._node(broker).signal(signal.SIGTERM)
            self._node(broker).wait_ended(seconds=15)
            class_archive.save(self._draft, self._archive)

    def launch(self, node: int) -> None:
        """Start the process of a node; do not wait until it answers."""
        # Only a sandbox that this process stops can wait until the archive is written; a JVM with an agent refuses to.
        record = self._watchdog is not None and node == self.broker_ids[0] and not self.plan.jmx_config
        command = self._java(self.plan.heap_megabytes, record=record)
        ports = self.plan.brokers.get(node)
        if ports and self.plan.jmx_config:
            (agent,) = jar_paths(JMX_AGENT)
            command[1:1] = [f"-javaagent:{agent}={HOST}:{ports.metrics}:{self.plan.jmx_config}"]
        self._node(node).start([*self._launcher(node), *command])

    def _wait_ready(self, node: int) -> None:
        wait_until(self._node(node).listening, f"node {node} to accept connections, see {self._node(node).log}")
        if node in self.plan.brokers:
            wait_until(lambda: node in self.admin.live_brokers(), f"broker {node} to be registered")

    def _format(self) -> None:
        """Format one node with Kafka's tool and copy its folder, because every run of the tool takes a second."""
        for node_id in self.plan.ports():
            node = self._nodes[node_id]
            node.write_properties(self.plan.properties_of(node_id, node.data))
        if self.plan.zookeeper is not None:
            zookeeper = self._nodes[_ZOOKEEPER]
            zookeeper.write_properties(zookeeper_properties(self.plan.zookeeper, zookeeper.data))
            write_plan(self.plan, self.root)
            return
        first, *others = self._nodes.values()
        tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(first.properties_file)]
        done = subprocess.run([*self._java(96), *tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ConfigurationError("Kafka cannot format the storage:", (done.stderr or done.stdout).strip())
        for node in others:
            _copy_formatted(first.data, node.data, node.node_id)
        write_plan(self.plan, self.root)

    def _leave(self, *, failed: bool = False) -> None:
        if not failed:
            self._keep_classes()
        self.down()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None
        if self._temporary and not failed:  # the logs of a cluster that did not start show why
            shutil.rmtree(self.root, ignore_errors=True)


def _copy_formatted(source: Path, target: Path, node_id: int) -> None:
    shutil.copytree(source, target)
    meta = target / "meta.properties"
    own = {"node.id": str(node_id), "directory.id": random_id()}
    lines = [line.partition("=") for line in meta.read_text().splitlines()]
    meta.write_text("".join(f"{key}{sign}{own.get(key, value)}\n" for key, sign, value in lines))


# A watchdog that kills the nodes of a sandbox when the process that started it ends, for whatever reason.
# PR_SET_PDEATHSIG follows the thread that started a child, not the process, and would kill brokers started by a
# short-lived thread. A pipe follows the process: the kernel closes it.


_SCRIPT: Final = """\
read -r dismissed
for file in "$1"/node-*/pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  grep -qF -- "$1" "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid"
done
if [ -z "$dismissed" ] && [ "$2" = temporary ]; then
  rm -rf -- "$1"
fi
"""


class Watchdog:
    """A shell that waits for the end of this process, kills the nodes, and deletes a temporary folder."""

    def __init__(self, root: Path, *, temporary: bool) -> None:
        reading, self._writing = os.pipe()
        kind = "temporary" if temporary else "kept"
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "isrwatch-sandbox-watchdog", root, kind], stdin=reading, start_new_session=True
        )
        os.close(reading)

    def dismiss(self) -> None:
        """Kill the nodes that still run, keep the folder, and end the watchdog."""
        os.write(self._writing, b"dismissed\n")
        os.close(self._writing)
        self._shell.wait()
