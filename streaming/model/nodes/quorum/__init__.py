"""The controllers' quorum: Raft as Kafka has it (KIP-595), and the controller process on top of it."""
