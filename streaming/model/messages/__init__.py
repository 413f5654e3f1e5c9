"""Requests and responses of Kafka's protocol. Values only; each file is one conversation.

- ``outbox``                    a node's address, and the messages and timers it wants sent
- ``timers``                    what a process sets timers for
- ``fetch``                     replication: follower and leader
- ``offsets_for_leader_epoch``  where a leader epoch ends
- ``alter_partition``           ISR proposals
- ``membership``                registration, heartbeats, metadata
- ``quorum``                    the controllers among themselves
- ``produce``                   writes, and producer ids
- ``client_metadata``           leaders and coordinators for clients
- ``consumer_fetch``            reads of consumers
- ``delete_records``            deletion of the oldest records
- ``groups``                    members of a group and its coordinator
- ``transactions``              producers, leaders and coordinators of transactions
- ``control``                   what the ZooKeeper controller sends to brokers
- ``zookeeper``                 requests and watches of ZooKeeper
"""
