"""A Kafka cluster as values and tables. No clock, no randomness, no IO.

Two laws. Time is a whole number of milliseconds that the caller passes in; nothing here reads a clock or draws a
random number. A message goes in, messages and timers come out: who carries them, and how long that takes, is decided
by the caller.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``switches``         the checks that make replication safe, each one a switch
- ``constants``        Kafka's timing, by the names of its configuration keys
- ``errors``           Kafka's error codes, those that can occur here
- ``storage``          logs, producer state, retention, and what survives a crash
- ``registrations``    a partition, a broker, a topic as the controller stores them
- ``messages``         requests and responses of the protocol
- ``delivery``         addresses, events, the interface of the network
- ``network_client``   open, answered and lost requests of a node
- ``internal_topics``  topics in which Kafka, its clients and frameworks keep their state
- ``presets``          the defaults of Kafka versions
- ``controller``       the active controller: registry, elections, ISR proposals, reassignments
- ``broker``           the parts of a broker: leader, follower, life cycle
- ``coordinators``     coordinators of groups and of transactions
- ``server``           one broker process, and the requests it answers
- ``quorum``           the controllers: Raft as Kafka has it (KIP-595)
- ``zookeeper``        the other control plane, until 3.9
- ``clients``          producers and consumers
- ``probe``            what an observer outside the protocol may see
- ``control_plane``    chooses quorum or ZooKeeper
- ``admin``            administrative requests
- ``cluster``          the event loop that joins the nodes
- ``descriptions``     groups and transactions as an administrator sees them
- ``invariants``       what must hold after every step
- ``statements``       common claims about Kafka's replication, and what Kafka really does
"""
