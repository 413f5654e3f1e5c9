"""Where a job of a test reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.jobs.queries import JobLocations

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> JobLocations:
    return JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint")
