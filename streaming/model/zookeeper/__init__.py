"""Kafka on ZooKeeper (until 3.9): znodes, sessions, and a controller that is one of the brokers.

- ``znodes``            the tree of znodes: versions, owners, compare-and-set
- ``layout``            paths, and the data stored there
- ``ensemble``          the ensemble as one node: sessions, watches, the tree
- ``session``           a broker's session
- ``context``           the controller's cache of the cluster
- ``election``          chooses the next leader
- ``partition_states``  the states of a partition, as a table
- ``announcements``     requests of the controller to the brokers
- ``leader_and_isr``    how the controller changes leaders and ISRs
- ``isr_changes``       how a leader changed its ISR before 2.7
- ``controller_epoch``  what the active controller does, from its election to the end of its session
- ``controller``        the election of the controller among the brokers
- ``broker``            a broker: leader, follower, maybe controller
- ``chronicle``         changes in ZooKeeper as records of a metadata log
"""
