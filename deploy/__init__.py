"""Deployment of isrwatch: a launcher for spark-submit, compose, Prometheus, Alertmanager and Grafana."""
