"""HDFS: a NameNode and a DataNode, each a JVM of its own, from one jar of Hadoop and those of pyspark beside it.

Both take a port that the kernel gives them, and say it; what they share with the installation of a cluster is a folder
with ``core-site.xml`` and ``hdfs-site.xml``.
"""

from __future__ import annotations

import importlib.util
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from hdfs_native import Client

from streaming.errors import MissingTool
from streaming.runtime.jars import jar_paths
from streaming.runtime.java import find_java
from tests.stores.serving import serving
from tests.stores.store import BUCKET, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JAVA: Final = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # fmt: skip
NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
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
LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """Run HDFS with one DataNode and an empty folder.

    Raises:
        MissingTool: its jar, pyspark or Java is missing and cannot be fetched.
    """
    root = folder / "hdfs"
    _configure(root, port=0)
    formatted = subprocess.run(
        [*_java(root), NAME_NODE, "-format", "-nonInteractive"], cwd=root, capture_output=True, text=True, check=False
    )
    assert formatted.returncode == 0, formatted.stdout[-2000:] + formatted.stderr[-2000:]
    up = r"NameNode RPC up at: \S*127\.0\.0\.1:(\d+)"
    with serving([*_java(root), NAME_NODE], root / "namenode", ready=up) as said:
        port = int(said[1])
        _configure(root, port)
        with serving([*_java(root), DATA_NODE], root / "datanode", ready="successfully registered with NN"):
            Client(f"hdfs://127.0.0.1:{port}").mkdirs(f"/{BUCKET}", create_parent=True)
            yield Store(url=f"hdfs://127.0.0.1:{port}/{BUCKET}", port=port)


def _configure(root: Path, port: int) -> None:
    """Write the site's files; the port of the NameNode is known once it runs."""
    site = root / "conf"
    site.mkdir(parents=True, exist_ok=True)
    core = {"fs.defaultFS": f"hdfs://127.0.0.1:{port}", "hadoop.tmp.dir": str(root / "data")}
    (site / "core-site.xml").write_text(_xml(core), encoding="utf-8")
    (site / "hdfs-site.xml").write_text(_xml(SITE), encoding="utf-8")
    (site / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
    (root / "tmp").mkdir(exist_ok=True)


def _xml(properties: Mapping[str, str]) -> str:
    lines = (
        f"<property><name>{name}</name><value>{escape(text)}</value></property>" for name, text in properties.items()
    )
    return f"<configuration>\n{chr(10).join(lines)}\n</configuration>\n"


def _java(root: Path) -> list[str | Path]:
    """Return the command up to the class: Hadoop's servers before pyspark's jars, whose Hadoop has clients only."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingTool("HDFS runs on the jars of pyspark: pip install 'isrwatch[job]'")
    jars = Path(spec.origin).parent / "jars"
    (servers,) = jar_paths("test-hdfs")
    path = [root / "conf", servers, *sorted(jars.glob("hadoop-client-*.jar")), jars / "*"]
    return [find_java().executable, *JAVA, f"-Djava.io.tmpdir={root / 'tmp'}", "-cp", ":".join(map(str, path))]
