"""Kafka as the bus: what the collector's own log holds, shipped to two topics, and where a job continues in them.

The directory bus stays the spool of its collector. Knows confluent-kafka, no Spark.
"""
