"""Tails ``__cluster_metadata`` of a real KRaft cluster over the network, as an observer without an id."""
