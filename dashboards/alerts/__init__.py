"""The alerts over the signals, by subject; the runbook has one section per alert.

Severities: a *page* wakes a person, because data or writes are at risk now or the trouble would stay unseen; a
*ticket* is handled within days; *info* is context, and displayed.

- A page is about a cluster, or a broker of it, never a partition: a lost broker is one page, however many partitions it
  hosted; template queries list the topics and brokers.
- One page masks no other trouble: topics that are broken for good can be left out (``excluded_topics``), and what is
  added to an old trouble is a page of its own (``KafkaMorePartitionsUnavailable``).
- What is about a state continues until it ends. It does not resolve because monitoring data became stale and the state
  is withdrawn: then it continues as it was, and ``KafkaReplicationMonitorStale`` says why.
- What belongs to a trouble of which a page was less than 15 minutes ago pages no more: an unclean election
  next to partitions that are offline or refuse writes (their pages count it), refused writes next to both, lost brokers
  next to any. What is still there after that time is a page of its own (``same_trouble``). Partitions that are offline
  always are one.
- An internal topic is info next to the page that counts its partitions, and a burn rate is silent while such a page
  fires: one incident is one page.
- Staleness is measured by Prometheus itself (``time()`` minus the newest observation it ever scraped), so it does not
  matter whether the collector, the job, the exporter or the network between them failed.
"""

from dashboards.alerts.rules import rule_file
from dashboards.alerts.settings import AlertSettings
from dashboards.alerts.templates import PLANNED_CAUSES

__all__ = ["PLANNED_CAUSES", "AlertSettings", "rule_file"]
