"""Requests and responses of Kafka's protocol. Values only; each file is one conversation."""
