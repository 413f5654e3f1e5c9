"""What a broker stores on disk: logs, and what survives a crash."""
