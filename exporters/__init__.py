"""Reads the Delta tables and serves them to Prometheus and to people. No Spark and no Java.

In the order of the data:

- ``read_model``  follows the tables; an immutable snapshot in memory after each refresh
- ``metrics``     the metric catalogue, and the Prometheus exposition rendered from a snapshot
- ``web``         the HTTP server: exposition, health checks, JSON API (``isrwatch export``)
- ``terminal``    the commands that query the tables: ``isrwatch state``, ``isrwatch events`` and others
- ``backtest``    ``isrwatch backtest``: which alerts would have fired in the recorded past
- ``demo``        ``isrwatch demo``: the whole pipeline on a simulated cluster, watched live
"""
