"""Hadoop's servers, each a JVM of its own, from one jar of Hadoop and those of pyspark beside it.

What they share with each other and with their clients is a folder with ``core-site.xml`` and the like.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from streaming.errors import MissingTool
from streaming.runtime.jars import jar_paths
from streaming.runtime.java import find_java
from tests.stores.serving import started

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

JAVA: Final = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # fmt: skip
START_SECONDS: Final = 300.0  # on two cores that others use, too
LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


class HadoopServer:
    """One server, which may be killed and started again."""

    def __init__(self, folder: Path, main: str, ready: str, *, conf: Path, jars: Sequence[str]) -> None:
        """Name it; nothing runs yet.

        Args:
            folder: where it runs; its log is ``NAME.log`` there, in which NAME is that of the folder.
            main: the class.
            ready: a regular expression of its output that says that it answers.
            conf: the folder of its configuration.
            jars: the groups of jars that it runs on.
        """
        self._folder, self._main, self._ready = folder, main, ready
        self._conf, self._jars = conf, jars
        self._running: ExitStack | None = None
        self.pid = 0

    def start(self) -> re.Match[str]:
        """Start it, and return what it said when it was ready."""
        assert self._running is None, f"{self._folder.name} runs"
        with ExitStack() as starting:
            process, said = starting.enter_context(
                started(self._command(), self._folder, ready=self._ready, environment=bare(), seconds=START_SECONDS)
            )
            self.pid, self._kill = process.pid, process.kill
            self._running = starting.pop_all()
        return said

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._kill()
        self.stop()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._running is not None:
            self._running.close()
        self._running = None

    def run(self, *arguments: str) -> None:
        """Run its program with other arguments until it ends."""
        command = [*self._command(), *arguments]
        ended = subprocess.run(command, cwd=self._scratch(), capture_output=True, text=True, check=False, env=bare())
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]

    def _command(self) -> list[str | Path]:
        """Return the command: Hadoop's servers before pyspark's jars, whose Hadoop has clients only."""
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise MissingTool("Hadoop runs on the jars of pyspark: pip install 'isrwatch[job]'")
        jars = Path(spec.origin).parent / "jars"
        path = [self._conf, *jar_paths(*self._jars), *sorted(jars.glob("hadoop-client-*.jar")), jars / "*"]
        scratch = f"-Djava.io.tmpdir={self._scratch()}"
        return [find_java().executable, *JAVA, scratch, "-cp", ":".join(map(str, path)), self._main]

    def _scratch(self) -> Path:
        folder = self._folder / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def bare() -> dict[str, str]:
    """Return the environment of a machine that has nothing of this process's, no secret above all.

    What a server of YARN starts has it, too: Spark takes ``SPARK_LOCAL_IP`` for the address of the machine.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "USER", "TZ") if name in os.environ}
    return {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", **kept}


def configure(folder: Path, **files: Mapping[str, str]) -> None:
    """Write the files of a configuration, ``core`` for ``core-site.xml``, and that of the log beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, properties in files.items():
        (folder / f"{name.replace('_', '-')}.xml").write_text(_xml(properties), encoding="utf-8")
    (folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")


def _xml(properties: Mapping[str, str]) -> str:
    lines = (
        f"<property><name>{name}</name><value>{escape(text)}</value></property>" for name, text in properties.items()
    )
    return f"<configuration>\n{chr(10).join(lines)}\n</configuration>\n"
