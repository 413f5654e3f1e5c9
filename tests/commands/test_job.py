"""``isrwatch job`` as a user runs it: how Spark starts, and that nothing of it is left when it is interrupted."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from streaming.commands import jars
from streaming.commands.job import connector_jars
from tests.plugins.pipeline import Pipeline

pytest_plugins = ("tests.plugins.pipeline",)
pytestmark = pytest.mark.spark
COMMAND = [sys.executable, "-m", "streaming.commands", "job"]


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.7, marks=pytest.mark.long)])
def test_ctrl_c_while_spark_starts_ends_it_cleanly_and_leaves_nothing(pipeline: Pipeline, seconds: float) -> None:
    job = pipeline.start("job", "job", *pipeline.job_arguments())
    pipeline.eventually(lambda: "starting Spark" in job.text() and job.children(), "Spark is started", job)
    time.sleep(seconds)
    assert job.stop() == 0, job.text()
    pipeline.eventually(lambda: not job.left(), "everything has ended")
    assert "stopped; everything applied is in the tables" in job.text()
    assert "Traceback" not in job.text()


@pytest.mark.long
def test_a_job_uses_the_archive_of_sparks_classes_and_ends_with_its_java_process(pipeline: Pipeline) -> None:
    archive = jars.archive()
    job = pipeline.job()
    pipeline.eventually(lambda: "waiting for isrwatch collect" in job.text(), "it says that the bus is empty", job)
    assert str(archive) in Path(f"/proc/{job.jvm()}/maps").read_text()
    assert "WARNING" not in job.text(), "Java's, of an incubator module that Spark adds"
    os.kill(job.jvm(), signal.SIGKILL)
    assert job.wait() != 0
    assert "Java process ended; start the job again: it continues where it stopped" in job.text()


@pytest.mark.long
def test_a_signal_to_the_whole_group_while_spark_starts_is_a_clean_end(pipeline: Pipeline) -> None:
    job = pipeline.start("job", "job", *pipeline.job_arguments())
    pipeline.eventually(lambda: "starting Spark" in job.text() and job.children(), "Spark is started", job)
    time.sleep(1)  # within the start of Spark
    assert job.stop_group() == 0, job.text()
    assert "Traceback" not in job.text()


CANNOT_CONNECT = """
import os, sys
if "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv:
    os.environ.pop("PYTHON_WORKER_FACTORY_SOCK_PATH", None)
    os.environ["PYTHON_WORKER_FACTORY_PORT"] = "1"
"""


@pytest.mark.long
def test_workers_that_cannot_connect_are_a_sentence_and_a_stop_meanwhile_is_clean(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CANNOT_CONNECT)
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    job = pipeline.start("job", "job", *pipeline.job_arguments(), PYTHONPATH=path)
    pipeline.eventually(lambda: "worker failed to connect back" in job.text(), "a query failed", job)
    time.sleep(1.5)  # its next start has begun
    assert job.stop() == 0, job.text()
    assert "stopped; everything applied is in the tables" in job.text()
    assert "CANNOT_OPEN_SOCKET" not in job.text()
    assert "Traceback" not in job.text()


@pytest.mark.long
def test_a_java_that_does_not_start_is_one_sentence_below_its_own_lines(pipeline: Pipeline) -> None:
    job = pipeline.start("job", "job", *pipeline.job_arguments(), JDK_JAVA_OPTIONS="-XX:NoSuchOption")
    assert job.wait() == 1
    assert job.text().splitlines()[-1].startswith("Spark did not start: [JAVA_GATEWAY_EXITED] Java gateway process")
    assert "Traceback" not in job.text()


NAMELESS = ["unshare", "--user", "--map-user=12345", "--map-group=0"]
"""What a program is run by for a uid without a name."""


def test_a_uid_without_a_name_is_one_sentence(pipeline: Pipeline) -> None:
    job = pipeline.run("job", [*NAMELESS, *COMMAND, *pipeline.job_arguments()], LD_PRELOAD="")
    assert job.wait() == 1
    (line,) = job.text().splitlines()
    assert line.startswith("uid 12345 has no name in /etc/passwd, and without one Spark does not start: add a line")


@pytest.mark.long
def test_a_uid_that_the_platform_gave_a_name_works(pipeline: Pipeline) -> None:
    names = pipeline.directory / "passwd"
    names.write_text(f"{Path('/etc/passwd').read_text()}12345:x:12345:0:12345 user:/:/sbin/nologin\n")
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mounted += [f'mount --bind {names} /etc/passwd && exec "$@"', "sh"]
    job = pipeline.run("job", [*mounted, *NAMELESS, *COMMAND, *pipeline.job_arguments()], HOME="/")
    pipeline.eventually(lambda: "running" in job.text(), "the job runs", job)
    assert job.stop_group() == 0
    assert "Traceback" not in job.text()


def test_no_archive_is_made_of_a_job_that_does_not_run_and_its_last_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "spark_archive", lambda: tmp_path / "spark-classes-0.jsa")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:NoSuchOption")
    with pytest.raises(jars.ArchiveMissing, match="JAVA"):
        jars.archive()


def test_under_spark_submit_no_jar_is_fetched_because_spark_was_given_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv("ISRWATCH_IVY_SETTINGS", str(tmp_path / "nowhere.xml"))
    assert connector_jars() == ()


@pytest.mark.long
def test_a_standby_of_a_folder_waits_for_the_lock_and_runs_once_the_job_is_killed(pipeline: Pipeline) -> None:
    active = pipeline.job()
    own = ["--checkpoint", str(pipeline.directory / "second"), "--standby"]
    standby = pipeline.start("standby", "job", *pipeline.job_arguments(), *own)
    pipeline.eventually(lambda: "standing by with Spark ready" in standby.text(), "it waits", standby, 400.0)
    second = pipeline.start("second", "job", *pipeline.job_arguments())
    assert second.wait() == 1
    assert "another job writes the tables below" in second.text()
    active.pause()
    time.sleep(3)  # longer than a standby looks for the lock
    assert "taking over" not in standby.text()
    active.kill()
    pipeline.eventually(lambda: "running" in standby.text(), "it takes over", standby, 400.0)
    waiting = pipeline.start("waiting", "job", *pipeline.job_arguments(), *own)
    pipeline.eventually(lambda: "standing by with Spark ready" in waiting.text(), "it waits", waiting, 400.0)
    assert waiting.stop() == 0
    assert waiting.text().splitlines()[-1].endswith("stopped; it was standing by")
    assert standby.stop() == 0
