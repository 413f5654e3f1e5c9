"""Spark data sources.

- ``bus_source``      the bus; the one place where bus and Spark meet
- ``changes_source``  the versions of ``partition_changes``
"""
