"""The alerts over the signals, by subject; the runbook has one section per alert.

From the bottom of the import order to the top:

- ``settings``       windows, thresholds, links; clusters that must be there, topics that do not count
- ``templates``      the parts of rules: links, numbers and lists in descriptions, what stays true while data is stale
- ``planned``        what is planned, and so no reason for an alert
- ``same_trouble``   what keeps a page quiet while another one says what matters more of the same trouble
- ``recording``      what is recorded, because it is asked often or reads days of samples
- ``availability``   pages about partitions: offline, under min ISR, more than before, elected uncleanly
- ``budget``         burn rates of the time in which partitions may be unavailable
- ``redundancy``     replicas and brokers that are missing: lost brokers, under-replication, reassignments
- ``liveness``       brokers that run but do not serve: fenced, restarting again and again, slow, not back in time
- ``agents``         what only a broker's own agent knows: recovery, partitions given up, metadata not applied
- ``disks``          log directories that failed, volumes that will be full
- ``controllers``    the quorum: no leader, too many elections, voters that are behind
- ``groups``         groups that stand still, fall behind or lose records; hanging transactions
- ``balance``        preferred leaders, skew, very many partitions
- ``configuration``  topics that are not durable, throttles left behind, unfinished upgrades
- ``context``        what is displayed beside the others: incidents, internal topics
- ``monitoring``     whether the state of partitions can be believed
- ``pipeline``       parts of the monitor that fail while the rest goes on
- ``rules``          the rule file

Severities: *page* wakes somebody, because data or writes are at risk now or nobody would learn of it; of a *ticket*
somebody must take care within days; *info* is context, and displayed.

Decisions:

- A page is about a cluster, or a broker of it, never a partition: a lost broker is one page, however many partitions it
  hosted; template queries list the topics and brokers.
- One page masks no other trouble: topics that are broken for good can be left out (``excluded_topics``), and what is
  added to an old trouble is a page of its own (``KafkaMorePartitionsUnavailable``).
- What is about a state continues until it ends. It does not resolve because monitoring data became stale and the state
  is withdrawn: then it continues as it was, and ``KafkaReplicationMonitorStale`` says why.
- What belongs to a trouble of which somebody was woken less than 15 minutes ago wakes nobody again: an unclean election
  beside partitions that are offline or refuse writes (their pages count it), refused writes beside both, a lost broker
  beside any. What is still there after that time is a page of its own (``same_trouble``). Partitions that are offline
  always are one.
- An internal topic is info beside the page that counts its partitions, and a burn rate is silent while such a page
  fires: one incident is one page.
- Staleness is measured by Prometheus itself (``time()`` minus the newest observation it ever scraped), so it does not
  matter whether the collector, the job, the exporter or the network between them failed.
"""

from dashboards.alerts.planned import PLANNED_CAUSES
from dashboards.alerts.rules import rule_file
from dashboards.alerts.settings import AlertSettings

__all__ = ["PLANNED_CAUSES", "AlertSettings", "rule_file"]
