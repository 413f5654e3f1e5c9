"""Reads and writes the Delta tables. No Spark, no JVM: delta-rs alone.

Access:

- ``storage``                   every access to the tables' folders and data files
- ``table_log``                 every access to the entries of a table's log
- ``arrow_types``               the plain types of the contracts in Arrow
- ``definitions``               ``contracts.tables`` spelled in Arrow
- ``layouts``                   opens tables to write them: creates them, and adds the columns that they lack
- ``table_lock``                which process may write; errors of the disk as errors for the user
- ``writer``                    one writer per table: commits exactly on the version it knows; the loser of a race stops
- ``file_exchange``             data files exchanged for others in one commit
- ``compaction``                small files of a day into larger ones, at exactly the next version
- ``durable``                   what has reached the disk; what a power cut may have taken is cut off
- ``rollback``                  derived tables that are ahead of the change log
- ``maintenance``               compaction and retention
- ``history``                   expiry of history by days, and the rows that must stay
- ``positions``                 how far the logs of the bus were applied to a table
- ``queries``                   tables read as Arrow through DataFusion
- ``arrow_values``              Arrow columns as Python values

Reading (also the exporter's):

- ``change_reader``             follows ``partition_changes`` by version
- ``state_reader``              reads the state: state tables, then the changes after them
- ``state_rows``                states as rows, and rows as states
- ``events``                    changes as rows of ``replication_events``

Writing:

- ``change_log``                the writer of ``partition_changes``: one commit per batch, exactly at version N + 1
- ``change_rows``               changes as rows of ``partition_changes``
- ``projections``               writes the tables that derive from the change log
- ``stored_partitions``         partitions as columns until something asks for their topic
- ``partition_counts``          what such columns add to the counts of brokers and clusters
- ``shared_state``              the job's state at one version, shared between the batches and the projections
- ``partitions``                rows of ``partition_state``, in Arrow
- ``summaries``                 rows of ``broker_state`` and ``cluster_state``
- ``progress``                  rows of ``source_progress``: how far the sources of one channel were applied
- ``newest``                    tables that keep the newest row per key: replica offsets, broker metrics
- ``lag``                       lag of replicas and groups, as Arrow columns
- ``broker_speeds``             rows of ``broker_speed``: which broker is slow, round by round
- ``slopes``                    how fast sampled values move, as Arrow columns
- ``topic_rules``               roles and durability of topics, as Arrow columns
- ``isr_reconciliation_table``  ISR changes that brokers counted, compared with those recorded
- ``incidents``                 the ``incidents`` table
- ``cluster_contexts``          what incidents need of each cluster when they start
- ``closed_incidents``          how long closed incidents stay, and the counts of those that do not
- ``incident_rows``             rows of ``partition_changes`` for incidents, and incidents as rows
- ``quarantine``                unparseable records, with the reason
- ``quarantine_rows``           which of them are kept whole, and the counts of the others
"""

from __future__ import annotations

from streaming.runtime.arrow import without_pandas

without_pandas()  # here, because every process that makes an array imports this package
