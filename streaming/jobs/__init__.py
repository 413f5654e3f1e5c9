"""The Spark queries: rows of the bus in, one commit to the tables per micro-batch. No rule of replication inside."""
