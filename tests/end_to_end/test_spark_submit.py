"""``spark-submit deploy/spark/main.py`` is the same job."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.runtime.java import java_environment
from tests.end_to_end.stories import essence, expected_changes, long_story

if TYPE_CHECKING:
    from tests.plugins.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]
MAIN = Path(__file__).parents[2] / "deploy" / "spark" / "main.py"


def test_a_submitted_job_applies_the_bus_and_a_plain_one_goes_on_after_it(pipeline: Pipeline) -> None:
    story = long_story(seed=6, steps=120)
    submit = [str(Path(sys.executable).parent / "spark-submit"), str(MAIN), *pipeline.job_arguments()]
    with closing(DirectoryPublisher(pipeline.bus, segment_bytes=20_000)) as publisher:
        publisher.publish(story[:80])
        submitted = pipeline.run("submitted", submit, **java_environment())
        pipeline.eventually(lambda: applied(pipeline) >= 80, "the first part is applied", submitted)
        submitted.kill()
        publisher.publish(story[80:])

    job = pipeline.job()
    pipeline.eventually(lambda: applied(pipeline) >= len(story), "the rest is applied", job)

    assert job.stop() == 0, job.text()[-3000:]
    assert essence(pipeline.rows("partition_changes")) == expected_changes(story)


def applied(pipeline: Pipeline) -> int:
    return max((row["sequence"] or 0 for row in pipeline.rows("partition_changes")), default=0)
