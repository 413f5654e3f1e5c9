"""Kafka on ZooKeeper (until 3.9): znodes, sessions, and a controller that is one of the brokers."""
