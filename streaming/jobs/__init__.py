"""The Spark queries: rows of the bus in, one commit to the tables per micro-batch. No rule of replication inside.

- ``schemas``       the schemas of the contracts in Spark types
- ``applied``       the result of one micro-batch, and how long each stage took
- ``session``       the Spark session
- ``streams``       Spark data sources: the bus, the change log
- ``queries``       what a query is, and one run of it: a stream in, one callback per micro-batch
- ``spark_errors``  what Spark failed with, as one sentence
- ``driver``        applies each micro-batch in the driver: decode, fold, commit
- ``registry``      the queries by name, one line each
- ``supervised``    one query, restarted when it fails
- ``reporting``     how far the job is behind the bus
- ``metrics``       the job's own metrics
- ``application``   all queries of one process, from start to clean stop
"""
