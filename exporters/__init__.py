"""Reads the Delta tables and serves them to Prometheus and to people. No Spark and no Java."""
