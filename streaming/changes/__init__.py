"""What follows from observations. Pure: values in, values out; no clock, no IO, no Spark.

``fold(state, observations)`` is the only place where the rule of a transition is written. It never guesses a cause:
sources prove causes, because only they see the order of records.

- ``state``       what is true now: partitions, brokers, clusters, sources
- ``change``      one accepted step, with its events
- ``buckets``     a batch cut by topics, so that folds of all equal one fold
- ``fold``        observations applied one by one
- ``confirmed``   a run of observations that told nothing new
- ``clocks``      when an observation happened, where a clock is wrong
- ``authority``   who orders the partitions of a cluster
- ``partitions``  the step of one partition: accept or drop, events, totals, durations
- ``min_isr``     the effective ``min.insync.replicas`` of a topic
- ``brokers``     the step of one broker
- ``snapshots``   what vanished between two sights
- ``tombstones``  how long a deleted partition is remembered, and where its totals go then
- ``tally``       counts per broker and cluster, kept up to date change by change
- ``reconciliation``  what a broker's own meters say that nobody recorded
- ``headroom``    which brokers may stop now, and in which order to restart them
- ``suspects``    who is to blame for a shrunk ISR
- ``incidents``   which changes are one thing that happened; ``incident_signals`` what a row is evidence of,
  ``incident_bounds`` which incident it belongs to, ``incident`` what was seen of one so far, ``accusations`` what
  leaders say of followers, ``incident_classes`` class, suspects and summary, ``incident_document`` one as text
- ``protocol``    rules that Kafka never breaks, checked on live data
"""
