"""Samples of groups: classic, consumer, share and streams groups, and the queries of Spark."""
