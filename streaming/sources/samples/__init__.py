"""Samples of a real cluster: what only each broker knows, asked of it on direct connections."""
