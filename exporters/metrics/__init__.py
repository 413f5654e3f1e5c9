"""Metrics: the catalogue, and the rendering of a snapshot as a Prometheus exposition."""
