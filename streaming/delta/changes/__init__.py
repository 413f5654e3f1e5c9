"""``partition_changes``, the truth: how it is written, followed and kept."""
