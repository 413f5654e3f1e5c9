"""Delta tables as files: definitions, logs, locks, writers, flushing to disk, and maintenance."""
