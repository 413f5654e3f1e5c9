"""Shared definitions. Standard library only, so that every package and every installation has them.

- ``identifiers``    Kafka's numbers and names, as types that do not mix
- ``moments``        moments as people read them
- ``records``        KRaft metadata records: what a controller writes (KIP-631, KIP-966)
- ``observations``   what a source reports
- ``blocks``         several partitions of one topic, reported or changed together, as one observation
- ``samples``        observations of sampled values: offsets, groups, transactions, directories, quorum, metrics
- ``sample_blocks``  what one broker reports at one moment, as one observation
- ``group_blocks``   what one broker reports of the groups that it coordinates, as one observation
- ``maintenance``    planned work on a broker, as it is announced
- ``fields``         every field of every observation, with its plain type
- ``codec``          observation to bytes and back, with a schema version
- ``log_position``   where a record stands on the bus, and in which log
- ``events``         the kinds of events, causes and evidence
- ``incidents``      the classes of incidents
- ``health``         the definitions of under-replicated, under min ISR, offline, lag
- ``totals``         counters of a partition, and how an open episode adds to them
- ``state``          the state of partitions, brokers, clusters and sources; most columns are derived from it
- ``stop_effects``   what would happen to a partition if one of its in-sync replicas stopped
- ``tally``          counts of partitions per broker and per cluster, updated change by change
- ``columns``        the columns of the tables, in groups that several tables share
- ``sample_tables``  the tables of sampled values
- ``tables``         every Delta table: columns, key, partitioning
"""
