"""The controllers' quorum: Raft as Kafka has it (KIP-595), and the controller process on top of it.

- ``roles``               the roles of a voter and their transitions, as a table
- ``voter``               elections
- ``raft_log``            the metadata log of one controller, and its persistent vote
- ``leader_state``        the other voters as the leader sees them: high watermark, liveness
- ``raft``                replication by fetching
- ``controller_process``  a voter and, while it leads, the active controller
- ``controllers``         the controllers of a cluster
- ``description``         DescribeQuorum (KIP-836)
"""
