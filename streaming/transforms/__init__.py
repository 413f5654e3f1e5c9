"""DataFrame in, DataFrame out; Column in, Column out. No session, no IO, no clock.

- ``partition_health``  ``contracts.health`` as Columns
- ``buckets``           rows cut into buckets of topics, and the newest row of a key
"""
