"""One Spark session a run, on this machine only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the session that the product starts, Delta's jars included, with room for a small machine.

    Here it also reads Delta tables and sorts, which the job leaves to Python: with Spark's defaults that takes seconds.
    """
    pytest.importorskip("pyspark")
    from streaming.jobs.session import build_session  # noqa: PLC0415 - starts Java only where it is asked for
    from streaming.runtime.jars import DELTA, jar_paths  # noqa: PLC0415 - the same

    session = build_session("tests", jars=jar_paths(DELTA), extra=SMALL)
    yield session
    session.stop()
