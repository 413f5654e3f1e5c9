"""How replication behaves: a Kafka cluster as values and tables. No clock, no randomness, no IO.

Two laws. Time is a whole number of milliseconds that the caller passes in; nothing here reads a clock or draws a
number. A message goes in, messages and timers come out: who carries them, and how long that takes, is the caller's.

Read in this order:

- ``constants``      Kafka's defaults, and presets of older versions
- ``log``            offsets and leader epochs of one replica's log
- ``truncation``     where a follower's log parts from its leader's
- ``segments``       the files of a log, and how a topic configures them
- ``retention``      what a log may forget; ``compaction``: what it remembers
- ``disk``           replicas and checkpoints: what outlives a process, a loss of power
- ``producer_state`` what a log knows of its writers: sequences, epochs, open and aborted transactions
- ``log_dirs``       the directories of a broker, one a disk
- ``remote_replica`` what a leader knows of one follower; when it counts as caught up
- ``partition``      what the controller knows of one partition
- ``leader``         what a leader knows of one partition it leads: ISR, proposals, high watermark
- ``election``       who leads next
- ``reassignment``   how replicas move
- ``change``         one step of a partition, and the record that tells of it
- ``registry``       all brokers, topics and partitions, with the indexes that keep every step cheap
- ``messages``       what travels
- ``heartbeats``     broker life cycle as a table
- ``alter_partition`` the checks of an ISR proposal as a table
- ``metadata_writer`` a step and its record together; batches, metadata for the brokers
- ``membership``     what brokers ask of the controller: registrations, heartbeats
- ``replication``    what leaders ask of it, and what time brings: ISR changes, elections
- ``topics``         what administrators ask of it
- ``controller``     requests in, record batches out
- ``timeline``       what the controller did and may have to undo
- ``quorum``         the controllers: ``roles`` as a table, ``voter`` (elections), ``raft`` (replication by fetching),
  ``raft_log``, ``leader_state``; ``controller_process``, ``controllers``; ``description``: what the active one tells
- ``controller_channel`` whom a broker takes for the active controller
- ``fetch_session``  the leader's half of a fetch session; why idle partitions cost nothing
- ``isr_proposals``  proposals on their way to the controller
- ``leadership``     a broker as leader: fetches, appends, shrink and expand
- ``reading``        what a leader reads from its log for those who fetch
- ``following``      a broker as follower: fetch loops, truncation
- ``cleanup``        a broker looks after its logs
- ``lifecycle``      a broker and its controller: registration, heartbeats, the end
- ``broker``         one broker process
- ``purgatory``      what waits for partitions to move
- ``produce``        acks, minimum ISR, duplicates; ``verification``: whether a transaction may begin here
- ``apis``           what a broker does for clients and other brokers, request by request
- ``metadata_cache`` what a broker tells clients
- ``network_client`` a node's own requests: open, answered, lost
- ``client``         what producers and consumers share
- ``producer``       retries in order; ``partition_queue``: of one partition; ``transactional_producer``
- ``transaction_state`` a transaction as a table; ``transactions``: its coordinator, ``transaction_log``: what it knows,
  ``sessions``: who is fenced, ``marker_sender``: a decision carried to every partition;
  ``transactions_view``: which of them hang
- ``consumer_reads`` a broker serves consumers: up to the high watermark, or from a replica nearby
- ``positions``      where a consumer is, as a table; ``fetching``: how it reads; ``committing``: how it commits
- ``classic_membership`` and ``consumer_membership``: how it stays in its group, in either protocol; ``consumer``
- ``classic_group``  a group as a table; ``consumer_group``: one of KIP-848, as epochs; ``classic_protocol`` and
  ``consumer_protocol``: what coordinator and members say; ``group_values``: what it writes, ``group_log``: what it
  knows; ``group_offsets``: committed offsets; ``groups``: the coordinator; ``view``: what an observer is told of it
- ``internal_topics`` topics that brokers, Streams and Connect keep their state in
- ``delivery``       addresses, events, the interface of the network
- ``admin``          what administrators ask of a cluster
- ``cluster``        the event loop that joins them
- ``probe``          what an observer is told
- ``zookeeper``      the other control plane, until 3.9: ``znodes``, ``ensemble``, ``session``; ``controller`` (elected
  among the brokers), ``term`` (what it does while it is), ``leader_and_isr``, ``election``; ``broker``; ``chronicle``
- ``invariants``     what must hold after every step, and the observer that checks it
- ``conformance``    whether a metadata log, a real cluster's or the model's own, is one that this controller writes
- ``placement``      where the replicas of a new topic go; ``placement_zookeeper`` where they went
"""
