"""The folder in which the processes of a run share their plays (``tests.plays``)."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of this run; the processes that xdist starts inherit its name."""
    if not hasattr(config, "workerinput") and os.environ.get("ISRWATCH_PLAYS") != "apart":
        folder = tempfile.TemporaryDirectory(prefix="isrwatch-plays-")
        os.environ["ISRWATCH_PLAYS"] = folder.name
        config.add_cleanup(folder.cleanup)
