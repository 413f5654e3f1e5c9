"""A real KRaft cluster on this machine, to watch and to break.

No containers and no root: a broker is a JVM of this user, listening on 127.0.0.1 only.

- ``cluster``     ``Sandbox``: format, start, kill, stop, pause, resume, restart
- ``plan``        ``plan_cluster``: what is decided when a cluster is made
- ``node``        one JVM
- ``properties``  what a node is told
- ``proxy``       ``ReplicationProxy``: hold, delay or limit one follower's link
- ``admin``       topics, configurations, elections, reassignments
- ``writer``      ``Writer``: keeps producing to every partition
- ``dump``        the metadata log as Kafka's own tool decodes it
- ``command``     ``isrwatch sandbox``
"""

from deploy.sandbox.admin import Admin, Partition
from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.dump import DumpedRecord, dump_metadata_log
from deploy.sandbox.plan import Plan, plan_cluster, read_plan
from deploy.sandbox.proxy import ReplicationProxy
from deploy.sandbox.waiting import wait_until
from deploy.sandbox.writer import Writer

__all__ = [
    "Admin",
    "DumpedRecord",
    "Partition",
    "Plan",
    "ReplicationProxy",
    "Sandbox",
    "Writer",
    "dump_metadata_log",
    "plan_cluster",
    "read_plan",
    "wait_until",
]
