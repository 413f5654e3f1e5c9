"""What travels between nodes, in the words of Kafka's protocol. Values only; each file is one conversation."""
