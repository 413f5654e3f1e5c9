"""Kafka as the bus: ships the collector's own logs to two topics, and says where a job continues in them.

The directory bus stays the spool of its collector. Knows confluent-kafka, no Spark.
"""
