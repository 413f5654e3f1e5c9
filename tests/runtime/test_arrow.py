from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import pyarrow as pa
import {module}
assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules
import pandas
assert pa.table({{"number": [1]}}).to_pandas().equals(pandas.DataFrame({{"number": [1]}}))
"""


@pytest.mark.parametrize("module", ["streaming.jobs.streams.bus_source", "exporters.read_model.reader"])
def test_a_process_that_makes_arrays_loads_no_pandas_before_it_asks_for_it(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""


def test_the_dashboards_read_the_catalogue_of_metrics_without_arrow() -> None:
    script = "import sys, dashboards.command; print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n", "the command takes twice as long to start"
