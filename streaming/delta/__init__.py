"""Reads and writes the Delta tables. No Spark, no JVM: delta-rs alone.

Every process that makes an Arrow array imports this package, so here Arrow is kept from pandas: where that is
installed, pyarrow imports it as soon as it makes its first array. That is forty megabytes and a third of a second of
every process, and no array of ours is made of a pandas object.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Finds no pandas, and leaves every other module to the finders after it."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for yet", name=name)


def _without_pandas() -> None:
    """Let pyarrow look for pandas now and not find it; a later import of pandas still succeeds."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


_without_pandas()
