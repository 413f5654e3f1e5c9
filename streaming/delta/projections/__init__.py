"""Tables derived from the change log: events, partition, broker and cluster state; rolled back when ahead of it."""
