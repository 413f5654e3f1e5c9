"""What a broker coordinates as the leader of an internal topic's partition: groups and transactions."""
