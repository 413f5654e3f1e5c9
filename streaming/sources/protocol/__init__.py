"""Kafka's protocol, asked directly: one blocking socket to one node."""
