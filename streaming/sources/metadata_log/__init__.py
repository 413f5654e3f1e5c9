"""Tails ``__cluster_metadata`` of a real KRaft cluster, over the network, as an anonymous reader.

- ``primitives``  Kafka's wire types: varints, compact strings and arrays, tagged fields
- ``schemas``     every metadata record as a table: key, versions, fields, tags
- ``decoding``    bytes of one record to a value of ``contracts.records``
- ``batches``     record batch v2 (KIP-98): frames, checksum, control records
- ``messages``    the requests that are sent, and what is read from their answers
- ``connection``  one blocking socket: correlation, timeouts, TLS, SASL
- ``security``    librdkafka properties as far as they concern a connection
- ``quorum``      which cluster, which controllers, who leads
- ``position``    the protocol of the reader without its sockets: hold back, release, truncate
- ``controllers`` the same for whom to ask: follow the leader, else ask round
- ``tail``        both together: one Fetch after another
- ``checkpoint``  where a collector stands, on disk
- ``source``      the source itself
"""
