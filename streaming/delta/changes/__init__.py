"""``partition_changes``, from which all other tables follow: how it is written, followed and kept."""
