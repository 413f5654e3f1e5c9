"""The alerts over the signals, by subject; the runbook has one section per alert.

From the bottom of the import order to the top:

- ``settings``      windows, thresholds, links; clusters that must be there, topics that do not count
- ``templates``     the parts of rules: links, numbers and lists in descriptions, what stays true while data is stale
- ``planned``       what is planned, and so no reason for an alert
- ``availability``  pages about partitions: offline, under min ISR, more than before, elected uncleanly, no controller
- ``redundancy``    replicas and brokers that are missing: lost brokers, under-replication, disks, reassignments
- ``monitoring``    whether the monitor itself can be believed
- ``rules``         the rule file

Severities: *page* wakes somebody, because data or writes are at risk or nobody would learn of it; *ticket* must be
mended; *info* is displayed.

Decisions:

- A page is about a cluster, or a broker of it, never a partition: a lost broker is one page, however many partitions it
  hosted; template queries list the topics and brokers.
- One page masks no other: topics that are broken for good can be left out (``excluded_topics``), and what is added to
  an old trouble is a page of its own (``KafkaMorePartitionsUnavailable``).
- A page continues until the trouble ends. It does not resolve because monitoring data became stale and the state is
  withdrawn: then it continues as it was, and ``KafkaReplicationMonitorStale`` says why.
- Staleness is measured by Prometheus itself (``time()`` minus the newest observation it ever scraped), so it does not
  matter whether the collector, the job, the exporter or the network between them failed.
"""

from dashboards.alerts.planned import PLANNED_CAUSES
from dashboards.alerts.rules import rule_file
from dashboards.alerts.settings import AlertSettings

__all__ = ["PLANNED_CAUSES", "AlertSettings", "rule_file"]
