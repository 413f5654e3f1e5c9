"""Spark data sources.

- ``bus_source``       the bus; the one place where bus and Spark meet
- ``bus_options``      its options, by name
- ``bus_rows``         what the workers give to Spark, as Arrow
- ``left_out_blocks``  blocks that repeat the state: workers leave them out by their digests
- ``sample_columns``   blocks of samples: workers decode them into columns
- ``changes_source``   the versions of ``partition_changes``
"""
