"""Storage of a broker: logs, and what survives a crash."""
