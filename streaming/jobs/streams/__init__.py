"""Spark data sources."""
