"""Sources: each is polled for observations and proves the causes it can.

- ``source``                the interface
- ``opening``               the sources of a configuration
- ``collectors``            several clusters, each with a collector that fails alone
- ``collector``             polls sources, each in a thread, and publishes what they return
- ``separate``              a collector in a process of its own
- ``collector_metrics``     what each source reported, as metrics and as health
- ``listeners``             asks every listener: does it respond, and with which certificate
- ``listener_watch``        asks them again and again, as a source
- ``connection_metrics``    which listeners respond, and until when certificates are valid, as metrics
- ``pace``                  a source on another clock
- ``checkpoint``            the position of a collector, on disk
- ``address``               the address of a node of Kafka
- ``timer``                 when a source asks again, and when it is silent
- ``protocol``              Kafka's protocol, asked directly where librdkafka has no call
- ``permissions``           what each permission gives, what is missing without it, and the command that grants it

The KRaft metadata log:

- ``metadata_log``          tails ``__cluster_metadata`` of a real KRaft cluster
- ``image``                 a cluster's metadata: record batches in, observations out (pure)
- ``image_state``           the metadata as a value, and what each record does to it
- ``image_observed``        a change of the metadata as an observation
- ``image_document``        the metadata as JSON, for checkpoints
- ``causes``                why an ISR or a leader changed, from the order of records (pure)
- ``causes_context``        the records around a partition change in its batch
- ``causes_revised``        ISR removals whose cause is in doubt until a later record proves it
- ``session_gaps``          the session timeout, as the log shows it

Polling:

- ``admin``                 polls the brokers, where the metadata log cannot be read
- ``admin_metadata``        the cluster's metadata, requested by threads of its own
- ``admin_broker``          one broker, asked for its view of the cluster
- ``admin_access``          how the brokers of a configuration are asked
- ``admin_librdkafka``      brokers and leaders asked by librdkafka, for logins that only it has
- ``admin_servers``         whether the bootstrap servers are of one cluster
- ``admin_turns``           which address is asked next
- ``admin_responses``       Metadata and DescribeTopicPartitions, decoded
- ``admin_clients``         ends each client of librdkafka on a thread of ours
- ``admin_view``            what one poll shows, and what changed since the one before
- ``admin_doubts``          which view may be older than the one before, and how long it is in doubt
- ``admin_report``          what is reported of a view: what has changed, or everything
- ``admin_epochs``          topics and leader epochs that were polled last, on disk
- ``admin_described``       configurations, requested on direct connections
- ``admin_configs``         ``min.insync.replicas`` as the brokers apply it, diskless topics, times of a broker
- ``admin_offsets``         log positions, requested from each leader separately
- ``admin_reassignments``   the reassignments in progress
- ``admin_refusals``      what a cluster refuses, as one sentence with the fix
- ``broker_metrics``        scrapes the brokers' JMX exporters
- ``broker_metrics_names``  the broker metrics that are kept, in each dialect of JMX-exporter rules
- ``append_times``          how long brokers take to append, from what they say of themselves

Samples:

- ``samples``               log positions and directories, asked of every broker
- ``replication_pairs``     which followers are behind which leaders (pure)
- ``high_watermarks``       since when a record has been readable

No cluster at all:

- ``simulated``             drives the model: clock, seed, network and faults are its own
"""
