"""How we learn: every source is polled for observations and proves the causes it can.

- ``source``          the interface, and nothing else
- ``image``           a cluster's metadata, applied record by record (pure)
- ``causes``          why an ISR or a leader changed, from the order of records (pure)
- ``collector``       polls sources, each in a thread, and publishes what they saw
- ``pace``            a source on another clock
- ``simulated``       drives the model: clock, seed, network and faults are its own
- ``metadata_log``    tails ``__cluster_metadata`` of a real KRaft cluster
- ``admin``           polls the brokers, where no controller may be read
- ``broker_metrics``  scrapes the brokers' JMX exporters
"""
