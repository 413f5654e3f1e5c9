"""The parts of a broker: as leader, as follower, and its life cycle.

- ``remote_replica``       one follower as its leader sees it; when it counts as caught up
- ``leader``               one partition as its leader sees it: ISR, proposals, high watermark
- ``isr_expiration``       which followers a leader wants to remove from its ISRs
- ``isr_proposals``        proposals on their way to the controller
- ``fetch_session``        the leader's half of a fetch session; why idle partitions cost nothing
- ``fetcher``              the follower's half
- ``reading``              what a leader reads from its log for followers and consumers
- ``epoch_ends``           where a leader epoch ends in its log
- ``leadership``           a broker as leader: fetches, appends, shrink and expand
- ``following``            a broker as follower: fetch loops, truncation
- ``cleanup``              retention, compaction, DeleteRecords
- ``controller_channel``   which node a broker takes for the active controller
- ``lifecycle``            registration, heartbeats, shutdown
- ``purgatory``            operations that wait for partitions to advance
- ``produce``              acks, minimum ISR, duplicates
- ``producer_ids``         blocks of producer ids
- ``verification``         whether a transaction may begin in a partition
- ``transaction_markers``  writes the decision of a transaction's coordinator
- ``consumer_reads``       serves consumers: up to the high watermark, or from a nearby replica
- ``metadata_cache``       what a broker reports of leaders and coordinators to clients
- ``sockets``              requests that arrive before a process is registered
- ``probe``                what an observer may see of replication
"""
