"""What Spark says of an error in a Python worker is read back as the error that it was."""

from __future__ import annotations

import pytest

from streaming.errors import IsrwatchError, NewerFormat
from streaming.jobs.spark_errors import SparkEnded, sentence_of, spark_failure

TRACE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
Traceback (most recent call last):
  File "/opt/isrwatch/streaming/jobs/streams/changes_source.py", line 104, in read
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:574)
"""


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        ("streaming.errors.IsrwatchError: the bus was cut", IsrwatchError, "the bus was cut"),
        ("streaming.errors.TableRefused: upgrade isrwatch", IsrwatchError, "upgrade isrwatch"),
        ("streaming.errors.NewerFormat: upgrade the job", NewerFormat, "upgrade the job"),
        ("streaming.delta.change_reader.ChangesRestarted: it is gone", IsrwatchError, "it is gone"),
        ("streaming.errors.NewerFormat: x\n\nTraceback\nstreaming.errors.IsrwatchError: y", IsrwatchError, "y"),
        ("pyspark.errors.exceptions.base.PySparkException: [X] streaming.errors", SparkEnded, TRACE.splitlines()[0]),
        ("OSError: streaming.toml: cannot read", SparkEnded, TRACE.splitlines()[0]),
    ],
)
def test_an_error_of_ours_keeps_its_sentence_and_one_that_no_restart_mends_its_class(
    error: str, kind: type[Exception], sentence: str
) -> None:
    failure = RuntimeError(TRACE.format(error=error))

    assert sentence_of(failure) == sentence
    assert type(spark_failure(failure)) is kind
    assert str(spark_failure(failure)) == sentence
