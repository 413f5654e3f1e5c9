"""The active controller: which replicas lead, are in sync, are alive.

- ``registry``             all brokers, topics and partitions, with indexes
- ``change``               one step of a partition, and the record written for it
- ``election``             chooses the next leader
- ``reassignment``         how replicas move
- ``alter_partition``      the checks of an ISR proposal, as a table
- ``heartbeats``           the life cycle of a broker, as a table
- ``timeline``             state that is rolled back if the quorum never commits it
- ``commit``               what one operation leaves behind
- ``metadata_writer``      a step and its record together; batches for the brokers
- ``membership``           registrations, heartbeats, sessions, fencing
- ``java_random``          ``java.util.Random`` and ``Collections.shuffle`` over given random bits
- ``placement``            where the replicas of a new topic are placed
- ``placement_zookeeper``  the same with ZooKeeper
- ``topics``               administrative requests about topics
- ``replication``          requests of leaders, and timeouts: ISR changes, elections
- ``producer_ids``         blocks of producer ids
- ``controller``           requests in, record batches out
"""
