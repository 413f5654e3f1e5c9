"""Incidents: changes that belong together, their class, whom they concern and what to do first."""
