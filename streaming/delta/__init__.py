"""Reads and writes the Delta tables. No Spark, no JVM: delta-rs alone."""

from __future__ import annotations

from streaming.runtime.arrow import without_pandas

without_pandas()  # every process that makes an Arrow array imports this package
