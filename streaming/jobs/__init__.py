"""The Spark queries: rows of the bus in, one commit to the tables a batch. No rule of replication inside.

- ``session``      the Spark session with the configuration that was measured
- ``bus_source``   the bus as a Spark source: the one place where bus and Spark meet
- ``queries``      a channel of the bus in, one callback a micro-batch
- ``batch``        the replication channel: payloads decoded, folded, committed; in the driver
- ``newest``       the channels of samples: offsets, broker metrics
- ``application``  every query, the projections behind them, and a clean end
"""
