"""Where a job of a test reads and writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.jobs.queries import JobLocations


@pytest.fixture
def places(tmp_path: Path) -> JobLocations:
    return JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint")
