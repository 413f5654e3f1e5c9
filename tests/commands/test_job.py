"""``isrwatch job`` as a user runs it: how Spark starts, and that nothing of it is left when it is interrupted."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from streaming.commands import jars
from tests.plugins.pipeline import Pipeline

pytest_plugins = ("tests.plugins.pipeline",)
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.7, marks=pytest.mark.long)])
def test_ctrl_c_while_spark_starts_ends_it_cleanly_and_leaves_nothing(pipeline: Pipeline, seconds: float) -> None:
    job = pipeline.start("job", "job", *pipeline.job_arguments())
    pipeline.eventually(lambda: "starting Spark" in job.text() and job.children(), "Spark is started", job)
    time.sleep(seconds)
    assert job.stop() == 0, job.text()
    pipeline.eventually(lambda: not job.left(), "everything has ended")
    assert "stopped; everything applied is in the tables" in job.text()
    assert "Traceback" not in job.text()


def test_a_job_uses_the_archive_of_sparks_classes_and_ends_with_its_java_process(pipeline: Pipeline) -> None:
    archive = jars.archive()
    job = pipeline.job()
    pipeline.eventually(lambda: "waiting for isrwatch collect" in job.text(), "it says that the bus is empty", job)
    assert str(archive) in Path(f"/proc/{job.jvm()}/maps").read_text()
    os.kill(job.jvm(), signal.SIGKILL)
    assert job.wait() != 0
    assert "Java process ended; start the job again: it continues where it stopped" in job.text()


def test_no_archive_is_made_of_a_job_that_does_not_run_and_its_last_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "spark_archive", lambda: tmp_path / "spark-classes-0.jsa")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:NoSuchOption")
    with pytest.raises(jars.ArchiveMissing, match="JAVA"):
        jars.archive()
