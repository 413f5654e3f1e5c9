"""Polling: the state of a cluster as its brokers report it, for clusters whose metadata log may not be read."""
