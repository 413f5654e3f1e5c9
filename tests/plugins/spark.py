"""One Spark session a run, on this machine only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the session that the product starts, with room for a small machine."""
    pytest.importorskip("pyspark")
    from streaming.jobs.session import build_session  # noqa: PLC0415 - starts Java only where it is asked for

    session = build_session("tests", extra={"spark.driver.memory": "1g"})
    yield session
    session.stop()
