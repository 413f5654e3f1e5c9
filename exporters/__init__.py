"""Exporters of isrwatch: they serve the Delta tables to Prometheus and to people. No Spark and no Java."""
