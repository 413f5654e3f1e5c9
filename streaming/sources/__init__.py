"""Sources: each is polled for observations and proves the causes it can."""
