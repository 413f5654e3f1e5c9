"""The distributed execution mode: read, fold and write on executors, topics split into buckets.

- ``rows``           what travels between the steps, in Arrow: decode, route, fold
- ``topic_buckets``  splits rows into buckets of topics; the newest row per key
- ``tables``         the Delta tables: definitions and logs on the driver, rows on the executors
- ``state``          the state at a version, as rows for the fold
- ``quarantine``     unparseable records, kept verbatim
- ``batch``          the replication query
- ``batch_summary``  what a batch holds, a row per source
- ``tombstones``     what is deleted for good, and its totals
- ``summaries``      counts per broker and cluster
- ``projections``    the derived tables
- ``newest``         the queries of samples
"""
