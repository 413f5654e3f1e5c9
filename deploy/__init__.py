"""How isrwatch is deployed: a launcher for spark-submit, compose, Prometheus, Alertmanager and Grafana."""
