"""Follows the tables without a JVM: each refresh gives an immutable snapshot of their content.

- ``cluster_samples``  the newest samples of one cluster, as values
- ``reassignments``  what a reassignment has yet to do
- ``snapshot``       the content of the tables at one version, as values that never change
- ``cluster_names``  the names of clusters, where two have the same one
- ``isr_meters``     ISR changes by the leader that made them
- ``incidents``      open and recent incidents
- ``events``         the newest events, kept in memory
- ``group_sums``     what the partitions of a group add up to
- ``sampled_settings``  throttles left behind and feature levels, from sampled settings
- ``health_reasons``  the reasons not to call a cluster healthy
- ``cluster_draft``  the next snapshot of one cluster, made from the last one
- ``draft``          the next snapshot of all clusters
- ``advice``         restart advice and freshness, as the job computed them
- ``messages_in``    records appended, by the leader that appended them
- ``samples``        the newest samples, and how far the job has applied each source
- ``rebuilt``        the state from the change log alone
- ``cluster_reasons``  which of these reasons a cluster gives
- ``cluster_health``  healthy, unhealthy or unknown: the one rule
- ``side_tables``    each table that no change is read from, read for itself
- ``reader``         reads all tables: ``TablesReader(tables).refresh()``
- ``refresher``      a thread that refreshes in the background, so that a scrape never waits for a table
"""
