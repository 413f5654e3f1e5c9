"""What Spark says of an error in a Python worker is read back as the error that it was."""

from __future__ import annotations

import pytest

from streaming.errors import IsrwatchError, NewerFormat
from streaming.jobs.spark_errors import SparkEnded, sentence_of, spark_failure
from tests.jobs.failed_starts import LATE

TRACE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
Traceback (most recent call last):
  File "/opt/isrwatch/streaming/jobs/streams/bus_source.py", line 104, in read
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:574)
"""

OF_A_TASK = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in "
    "stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (host executor driver): "
    "org.apache.spark.SparkException: Python worker failed to connect back. SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: metrics"
)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        ("streaming.errors.IsrwatchError: the bus was cut", IsrwatchError, "the bus was cut"),
        ("streaming.errors.TableRefused: upgrade isrwatch", IsrwatchError, "upgrade isrwatch"),
        ("streaming.errors.NewerFormat: upgrade the job", NewerFormat, "upgrade the job"),
        ("streaming.delta.changes.reader.ChangesRestarted: it is gone", IsrwatchError, "it is gone"),
        ("streaming.errors.NewerFormat: x\n\nTraceback\nstreaming.errors.IsrwatchError: y", IsrwatchError, "y"),
        ("pyspark.errors.exceptions.base.PySparkException: [X] streaming.errors", SparkEnded, "[X] streaming.errors"),
        ("OSError: streaming.toml: cannot read", SparkEnded, "OSError: streaming.toml: cannot read"),
    ],
)
def test_an_error_of_ours_keeps_its_sentence_and_its_class(error: str, kind: type[Exception], sentence: str) -> None:
    failure = RuntimeError(TRACE.format(error=error))
    assert sentence_of(failure) == sentence
    assert type(spark_failure(failure)) is kind
    assert str(spark_failure(failure)) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"), [(f"{LATE}.\n\nJVM stacktrace:\n\tat o.a.S", LATE), (OF_A_TASK, LATE), ("", "RuntimeError")]
)
def test_a_cause_is_one_line_without_what_spark_writes_around_it(text: str, sentence: str) -> None:
    assert sentence_of(RuntimeError(text)) == sentence
