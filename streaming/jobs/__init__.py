"""The Spark queries: rows of the bus in, one commit to the tables a batch. No rule of replication inside.

- ``session``      the Spark session with the configuration that was measured
- ``bus_source``   the bus as a Spark source: the one place where bus and Spark meet
- ``registry``     the queries by name, a line each
- ``queries``      what a query is, and one run of it: a stream in, one callback a micro-batch
- ``supervised``   one query, kept running
- ``understood``   rows of the bus as observations in order, and what was refused
- ``repeats``      what a snapshot says again, told by its bytes alone
- ``batch``        the replication channel: payloads decoded, folded, committed; in the driver
- ``cluster_…``     the same on executors: rows that travel, tables, state, batches, derived tables, samples
- ``newest``       the channels of samples: offsets, broker metrics
- ``samples``      payloads of samples as Arrow columns
- ``sample_sources``  how far the sources of those channels came
- ``projecting``   the thread that writes the derived tables behind the batches
- ``reporting``    how far the job is behind the bus
- ``metrics``        the job's own metrics, from what Spark reports and what the queries tell
- ``serving``        them over HTTP
- ``application``  the queries that run here, each for itself, and a clean end
"""
