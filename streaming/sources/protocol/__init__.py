"""Kafka's protocol, asked directly where librdkafka has no call: one blocking socket to one node."""
