"""Producers and consumers: processes of the event loop that ask brokers and never see the controller.

- ``client``                  what producers and consumers share
- ``partitioner``             which partition a record goes to
- ``partition_queue``         one partition of a producer
- ``producer``                retries in order
- ``transactional_producer``  batches of several partitions, committed together or not at all
- ``consumer_config``         the configuration of a consumer
- ``positions``               the position of a consumer in each partition, as a table
- ``fetching``                how a consumer reads
- ``committing``              how a consumer commits
- ``membership``              a group member as its consumer sees it, in either protocol
- ``classic_membership``      a member of a classic group
- ``consumer_membership``     a member of a consumer group (KIP-848)
- ``consumer``                the consumer
"""
