"""What we talk about. Standard library only, so that every room and every installation has it.

- ``identifiers``   the numbers and names of Kafka, as types that do not mix
- ``records``       KRaft metadata records: what a controller writes (KIP-631, KIP-966)
- ``observations``  what a source saw
- ``fields``        every field of every observation, with its plain type
- ``events``        what happened, and why
- ``health``        the definitions: under-replicated, under min ISR, offline
- ``totals``        what is counted of a partition, and how an open episode adds to it
- ``codec``         observation to bytes and back, with a schema version
- ``tables``        every Delta table: columns, key, partitioning. The only place that spells a column name
"""
