"""A job on a Spark cluster shows itself where a Spark team looks: pages, history server, metrics sink, own listener.

What is set is what docs/large-form.md says; what the job itself logs and exposes is not repeated here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.runtime.java import find_java
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_batch import offsets_sample
from tests.plugins.local_http import free_port
from tests.plugins.spark_cluster import HOME

if TYPE_CHECKING:
    from tests.plugins.pipeline import Pipeline, Program
    from tests.plugins.spark_cluster import SparkCluster

pytest_plugins = ("tests.plugins.spark_cluster",)
pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).parents[2]
STREAMS = {"replication", "samples"}
PATIENCE = 400.0
LISTENER = """
package mine
import java.nio.file.{Files, Path, StandardOpenOption}
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

class Listener extends StreamingQueryListener {
  private def say(line: String): Unit = Files.writeString(
    Path.of("PLACE"), line + "\\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND)
  override def onQueryStarted(event: QueryStartedEvent): Unit = say("started " + event.name)
  override def onQueryProgress(event: QueryProgressEvent): Unit =
    say("progress " + event.progress.name + " " + event.progress.numInputRows)
  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = say("ended")
}
"""


def listener_of_a_user(folder: Path) -> tuple[Path, Path]:
    """Compile a listener with Spark's own Scala; give its jar, and the file that it writes."""
    source, jar, place = (folder / name for name in ("Listener.scala", "listener.jar", "said.txt"))
    source.write_text(LISTENER.replace("PLACE", str(place)))
    jars = ":".join(map(str, (HOME / "jars").glob("*.jar")))
    command = [
        find_java().executable,
        "-cp",
        jars,
        "scala.tools.nsc.Main",
        "-classpath",
        jars,
        "-d",
        str(jar),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return jar, place


def documented(text: str) -> dict[str, str]:
    """Give the properties of Spark in the fenced blocks of a text."""
    return dict(re.findall(r"^(spark\.\S+) +(\S+)$", text, re.MULTILINE))


def page_of(port: int, path: str) -> str:
    """Give a page of a program on this machine; nothing while it is not there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def history(pipeline: Pipeline, cluster: SparkCluster, logs: Path) -> tuple[Program, int]:
    """Start the real history server on event logs; give it and its port."""
    port = free_port()
    given = {"spark.history.fs.logDirectory": logs.as_uri(), "spark.history.ui.port": str(port)}
    options = " ".join(f"-D{name}={value}" for name, value in given.items())
    command = [str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
    server = pipeline.run("history", command, SPARK_HISTORY_OPTS=options, **cluster.environment())
    return server, port


@pytest.mark.timeout(1200)  # five JVMs on cores that others use, too
def test_pages_metrics_listener_log_and_history_have_both_queries_by_name(
    pipeline: Pipeline, spark_cluster: SparkCluster, package: Path, tmp_path: Path
) -> None:
    with closing(DirectoryPublisher(pipeline.bus, segment_bytes=200_000)) as publisher:
        publisher.publish([*long_story(seed=3, steps=50), offsets_sample(1)])
    jar, said = listener_of_a_user(tmp_path)
    logs, port = tmp_path / "events", free_port()
    logs.mkdir()
    properties = documented((ROOT / "deploy" / "spark" / "README.md").read_text())
    properties |= {"spark.eventLog.dir": logs.as_uri(), "spark.ui.port": str(port)}
    properties["spark.sql.streaming.streamingQueryListeners"] = "mine.Listener"
    options = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    command = [*spark_cluster.submit_arguments(package), "--jars", str(jar), *options]
    main = str(ROOT / "deploy" / "spark" / "main.py")
    job = pipeline.run("job", [*command, main, *pipeline.job_arguments()], cwd=Path("/"), **spark_cluster.environment())
    applied = ("replica_offsets", "partition_changes")
    pipeline.eventually(lambda: all(map(pipeline.rows, applied)), "it is applied", job, seconds=PATIENCE)

    pipeline.eventually(
        lambda: names_on(page_of(port, "/StreamingQuery/")) >= STREAMS, "the page of the driver", job, PATIENCE
    )
    metrics = pipeline.eventually(lambda: page_of(port, "/metrics/prometheus"), "Spark's metrics", job, PATIENCE)
    for name in STREAMS:
        assert re.search(rf"isrwatch_driver_spark_streaming_{name}_inputRate_total\S* \d", metrics), metrics[:3000]
        pipeline.eventually(lambda name=name: f"progress {name} " in said.read_text(), "the user's listener", job)
    os.kill(driver_of(job), signal.SIGINT)
    assert job.wait(PATIENCE) == 0, job.text()[-3000:]
    for name in STREAMS:
        assert re.search(rf"batch at=\S+ query={name} batch=0 batches=1 clusters=\S+ rows=\d+", job.text())

    server, port = history(pipeline, spark_cluster, logs)
    applications = "/api/v1/applications"
    (application,) = pipeline.eventually(
        lambda: json.loads(page_of(port, applications) or "[]"), "it is listed", server
    )
    assert application["name"] == "isrwatch"
    jobs = json.loads(page_of(port, f"{applications}/{application['id']}/jobs"))
    described = [str(each.get("description")) for each in jobs]
    assert {name for name in STREAMS if any(re.match(rf"\W*{name}\b", text) for text in described)} == STREAMS, (
        described
    )
    assert names_on(page_of(port, f"/history/{application['id']}/StreamingQuery/")) == STREAMS


def driver_of(job: Program) -> int:
    """Give the process of Python below spark-submit, which is Java."""
    (driver,) = (pid for pid in job.children() if "main.py" in Path(f"/proc/{pid}/cmdline").read_text())
    return driver


def names_on(page: str) -> set[str]:
    """Give the names of the queries on Spark's page."""
    return {name for name in STREAMS if re.search(rf">\s*{name}\s*<", page)}
