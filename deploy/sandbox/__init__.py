"""A real KRaft cluster on this machine, to monitor and to break.

No containers and no root: a broker is a JVM of this user, listening on 127.0.0.1 only.
"""

from deploy.sandbox.admin import Admin, PartitionDescription
from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.dump import DumpedRecord, dump_metadata_log
from deploy.sandbox.plan import Plan, plan_cluster, read_plan
from deploy.sandbox.proxy import ReplicationProxy
from deploy.sandbox.waiting import wait_until

__all__ = [
    "Admin",
    "DumpedRecord",
    "PartitionDescription",
    "Plan",
    "ReplicationProxy",
    "Sandbox",
    "dump_metadata_log",
    "plan_cluster",
    "read_plan",
    "wait_until",
]
