"""Tails ``__cluster_metadata`` of a real KRaft cluster over the network, as an observer without an id.

- ``schemas``      every metadata record as a table: key, versions, fields, tags
- ``decoding``     bytes of one record to a value of ``contracts.records``
- ``batches``      record batch v2 (KIP-98): frames, checksum, control records
- ``messages``     the requests, and what is read from their responses
- ``quorum``       which cluster, which controllers, which of them leads
- ``position``     the state machine of the reader: hold back, release, truncate
- ``controllers``  the state machine of whom to ask: follow the leader, else try each
- ``snapshot``     a KRaft snapshot, all of it or nothing
- ``tail``         both together: one Fetch after another
- ``resync``       a record that cannot be read: the warning before, the search for a KRaft snapshot after
- ``source``       the source itself
- ``opening``      the source of a configuration
- ``voters``       the voters of the quorum, a source of its own: no record holds who has caught up
"""
