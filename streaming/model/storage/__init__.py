"""What a broker keeps on disk: logs, and what outlives a process."""
