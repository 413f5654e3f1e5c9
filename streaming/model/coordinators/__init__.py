"""What a broker coordinates as the leader of an internal topic's partition: groups and transactions.

- ``assignors``          assignment of partitions to the members of a group
- ``classic_group``      a classic group as a table
- ``classic_protocol``   the conversation of a classic group with its coordinator
- ``consumer_group``     a consumer group (KIP-848), as epochs
- ``consumer_protocol``  the conversation of a consumer group with its coordinator
- ``member_sessions``    session timeouts of members
- ``group_values``       keys and values in ``__consumer_offsets``
- ``group_log``          the coordinator's state, read from its partitions and written to them
- ``group_offsets``      committed offsets
- ``groups``             the coordinator of groups
- ``transaction_state``  a transaction as a table
- ``transaction_log``    the coordinator's state, read from its partitions and written to them
- ``sessions``           fences the previous producer of a transactional id
- ``marker_sender``      sends a decision to every partition of a transaction
- ``transactions``       the coordinator of transactions
"""
