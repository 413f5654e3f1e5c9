"""The driver's own threads: incidents, and the derived tables."""
