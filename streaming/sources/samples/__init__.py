"""Samples of a real cluster: what only each broker knows, asked of it on direct connections.

- ``opening``            the samples of a configuration
- ``source``             the source: which brokers there are, and what is due
- ``broker_calls``       asks many brokers at once; a hung one delays only its own answers
- ``kind``               the interface of what is asked for
- ``offsets``            log positions of leaders and followers
- ``offset_blocks``      log positions as blocks (pure)
- ``listed_offsets``     ListOffsets, encoded and decoded
- ``speed``              how fast brokers respond, and who is behind in replication
- ``groups``             groups and their committed offsets, beside the positions of the partitions
- ``group_blocks``       groups as blocks (pure)
- ``described_groups``   ListGroups, and what describes the groups of each protocol
- ``described_streams``  StreamsGroupDescribe, decoded
- ``committed_offsets``  OffsetFetch, and DescribeShareGroupOffsets
- ``spark_groups``       queries of Spark as groups, beside the positions of the partitions
- ``spark_checkpoints``  how far a query has come (reads files)
- ``settings``           settings of topics and of brokers (DescribeConfigs)
- ``features``           the features that a broker supports
- ``directories``        log directories and sizes (DescribeLogDirs)
- ``quorum``             the voters and observers of the metadata quorum (DescribeQuorum)
- ``transactions``       open transactions, and those that hang
- ``described_transactions``  ListTransactions and DescribeTransactions, encoded and decoded
- ``described_producers``     DescribeProducers, encoded and decoded
- ``held_partitions``         partitions whose last stable offset stands still
- ``hanging_transactions``    which transactions no coordinator will end (pure)
"""
