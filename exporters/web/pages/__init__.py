"""Pages for people, rendered on the server: fleet, cluster, broker, topic, groups and incidents."""
