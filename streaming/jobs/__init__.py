"""The Spark queries: rows of the bus in, one commit to the tables per micro-batch. Contains no rule of replication."""
