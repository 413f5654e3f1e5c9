"""HDFS: a NameNode and a DataNode, each a JVM of its own, at ports that the kernel gives them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hdfs_native import Client

from tests.stores.hadoop import HadoopServer, configure
from tests.stores.store import BUCKET, Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JARS: Final = ("test-hdfs",)
SITE: Final = {
    "dfs.replication": "1",
    "dfs.permissions.enabled": "false",
    "dfs.namenode.rpc-bind-host": "127.0.0.1",
    "dfs.namenode.http-address": "127.0.0.1:0",
    "dfs.datanode.address": "127.0.0.1:0",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.datanode.ipc.address": "127.0.0.1:0",
    "dfs.namenode.safemode.extension": "0",
}


class Hdfs:
    """A NameNode that may be killed and started again, and its DataNode.

    Attributes:
        conf: the folder of the configuration of servers and clients.
        port: of the NameNode.
    """

    def __init__(self, root: Path) -> None:
        self.conf, self._root, self.port = root / "conf", root, 0
        package, up = "org.apache.hadoop.hdfs.server", r"NameNode RPC up at: \S*127\.0\.0\.1:(\d+)"
        self.name_node = HadoopServer(root / "namenode", f"{package}.namenode.NameNode", up, conf=self.conf, jars=JARS)
        registered = "successfully registered with NN"
        self._data_node = HadoopServer(
            root / "datanode", f"{package}.datanode.DataNode", registered, conf=self.conf, jars=JARS
        )

    def start(self) -> None:
        """Start both on an empty folder.

        Raises:
            MissingTool: their jar, pyspark or Java is missing and cannot be fetched.
        """
        self._configure()
        self.name_node.run("-format", "-nonInteractive")
        self.port = int(self.name_node.start()[1])
        self._configure()
        self._data_node.start()

    def _configure(self) -> None:
        """Write the site's files; the port of the NameNode is known once it runs, and stays."""
        core = {"fs.defaultFS": f"hdfs://127.0.0.1:{self.port}", "hadoop.tmp.dir": str(self._root / "data")}
        configure(self.conf, core_site=core, hdfs_site=SITE)

    def close(self) -> None:
        """End both."""
        self._data_node.stop()
        self.name_node.stop()


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """Run HDFS with one DataNode and an empty folder.

    Raises:
        MissingTool: its jar, pyspark or Java is missing and cannot be fetched.
    """
    started = Hdfs(folder / "hdfs")
    try:
        started.start()
        Client(f"hdfs://127.0.0.1:{started.port}").mkdirs(f"/{BUCKET}", create_parent=True)
        yield Store(url=f"hdfs://127.0.0.1:{started.port}/{BUCKET}", port=started.port)
    finally:
        started.close()
