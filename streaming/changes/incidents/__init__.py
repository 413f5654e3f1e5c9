"""Incidents: changes that belong together, their class, the brokers concerned and what to do first."""
