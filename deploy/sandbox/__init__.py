"""A real KRaft cluster on this machine, to monitor and to break.

No containers and no root: a broker is a JVM of this user, listening on 127.0.0.1 only.

- ``cluster``     ``Sandbox``: format, start, kill, stop, pause, resume, restart
- ``plan``        ``plan_cluster``: ids, ports and properties, decided when a cluster is created
- ``node``        one JVM
- ``properties``  ``server.properties`` of a node
- ``proxy``       ``ReplicationProxy``: hold, delay or limit the replication link of one follower
- ``admin``       topics, configurations, elections, reassignments
- ``writer``      ``TopicWriter``: keeps producing to every partition
- ``dump``        the metadata log as Kafka's own tool decodes it
- ``waiting``     waits for a condition instead of a fixed time
- ``watchdog``    kills the nodes when the process that drives a sandbox dies
- ``command``     ``isrwatch sandbox``
"""

from deploy.sandbox.admin import Admin, PartitionDescription
from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.dump import DumpedRecord, dump_metadata_log
from deploy.sandbox.plan import Plan, plan_cluster, read_plan
from deploy.sandbox.proxy import ReplicationProxy
from deploy.sandbox.waiting import wait_until
from deploy.sandbox.writer import TopicWriter

__all__ = [
    "Admin",
    "DumpedRecord",
    "PartitionDescription",
    "Plan",
    "ReplicationProxy",
    "Sandbox",
    "TopicWriter",
    "dump_metadata_log",
    "plan_cluster",
    "read_plan",
    "wait_until",
]
