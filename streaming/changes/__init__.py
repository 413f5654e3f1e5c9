"""Derives changes from observations. Pure: values in, values out; no clock, no IO, no Spark.

``fold(state, observations)`` is the only place where the rule of a transition is written. It never guesses a cause:
sources prove causes, because only they see the order of records.

The fold:

- ``fold``                    applies observations one by one
- ``draft``                   a fold in progress: the state it touched, over a state that it must not change
- ``state``                   the whole state, by key
- ``change``                  one accepted step, with its events
- ``listed``                  partitions as a block of the first full report lists them, made when asked for
- ``steps``                   the steps of a partition, written into a draft
- ``cluster_steps``           the steps of brokers, clusters and sources, written into a draft
- ``partitions``              one partition: accept or drop an observation; next state, health, durations
- ``partition_events``        the events of one partition step, and the totals they add to
- ``brokers``                 one broker: accept or drop an observation; next state and events
- ``maintenance``             planned work on a broker: what a record and the time make of its leases
- ``maintenance_steps``       the same, written into a draft
- ``primary_source``          which source orders the partitions of a cluster
- ``topic_configs``           what is configured for a topic: its ``min.insync.replicas``, whether it is diskless
- ``config_steps``            the steps of configurations, written into a draft
- ``clock_skew``              the time of an observation whose source has a wrong clock
- ``merging``                 in which order the observations of several sources are folded
- ``unchanged_run``           a run of observations that repeat the current state, as one value
- ``replaced_log``            what follows when a log on the bus is another one than before
- ``tombstones``              how long a deleted partition is remembered, and where its totals go then
- ``invariants``              rules that Kafka never breaks, checked on live data

Derived from the state and the changes:

- ``tally``                   counts per broker and cluster, and suspects, updated change by change
- ``restart_reasons``         the advice about a broker, in words
- ``restart_safety``          which brokers may stop now, and in which order to restart them
- ``suspects``                which broker explains the shrunk ISRs
- ``slow_brokers``            which broker is slow but alive, by samples of itself and its peers
- ``reconciliation``          ISR changes that brokers count themselves, compared with those recorded
- ``reconciliation_windows``  the samples and changes that are compared, one window per meter
- ``incidents``               groups changes into incidents
- ``remembered_incidents``    the incidents that are open or may go on: opened, merged, closed, forgotten
- ``absences``                brokers that went away, and which of those that were stopped are overdue
- ``incident``                one incident while it is open
- ``incident_merging``        two incidents that turned out to be one
- ``degraded``                the partitions that are degraded because of it
- ``incident_signals``        what a change is evidence of
- ``incident_bounds``         which incident a change belongs to
- ``planned_work``            what counts as planned, part by part
- ``cluster_context``         racks, live brokers and followers of a cluster
- ``configured_times``           the configured times of a cluster
- ``lag_attribution``         lag removals of several leaders compared: slow broker, stalled leader, lost link, split
- ``incident_classes``        class and suspects of an incident
- ``incident_words``          its summary: severity, consequence, next step
- ``stop_words``              what it says of brokers that were stopped, or went down during announced work
- ``incident_document``       an open incident as JSON, to resume it after a restart
"""
