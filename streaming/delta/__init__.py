"""The Delta tables: the only writers, and the tail that readers follow. No Spark, no JVM: delta-rs alone.

- ``definitions``   contracts.tables spelled in Arrow; create a table, or check that it is ours
- ``writer``        one writer a table: commits stand exactly on the version that it knows; the loser stops
- ``writing``       which process may write, and what a user is told when a disk refuses
- ``truth``         the writer of ``partition_changes``: one commit a batch, exactly at version N + 1
- ``rows``          changes as rows, rows as state
- ``partitions``    rows of ``partition_state``, in Arrow
- ``projections``   what derives from the truth: events, partition, broker and cluster state, source progress
- ``progress``      how far the sources of one channel were applied
- ``newest``        tables that keep the newest row of a key: replica offsets, broker metrics
- ``lag``           lag of replicas and groups as columns
- ``reconciled``    ISR changes that brokers counted against those recorded
- ``incidents``     one row an incident; ``incident_rows`` changes as incidents need them, incidents as rows
- ``quarantine``    what could not be understood
- ``upkeep``        compaction, and what of the past stays; ``derived`` who still needs it
- ``tail``          the rows that each new version added (the reading half, also the exporter's)
"""
