"""Spark data sources.

- ``bus_source``       the bus; the one place where bus and Spark meet
- ``left_out_blocks``  blocks that repeat the state: workers leave them out by their digests
- ``changes_source``   the versions of ``partition_changes``
"""
