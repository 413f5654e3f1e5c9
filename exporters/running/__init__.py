"""``isrwatch run``: collector, job and exporter of a real cluster in one command, one process each."""
