"""Delta tables as files: definitions, logs, locks, writers, what has safely reached the disk, and maintenance."""
