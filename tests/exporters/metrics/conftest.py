"""A reader of the busy cluster, and a moment at which all of it is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.read_model.reader import TablesReader
from tests.exporters.conftest import SECOND, Rows, Tables, restless


@pytest.fixture
def reader(busy_cluster: Tables) -> TablesReader:
    return restless(busy_cluster.directory)


@pytest.fixture
def fresh(rows: Rows) -> int:
    return rows.start + 31 * SECOND


@pytest.fixture(scope="session")
def still(written_busy_cluster: Path) -> TablesReader:
    """A reader of the same cluster for the tests that write nothing: it has read everything once."""
    return restless(written_busy_cluster)
