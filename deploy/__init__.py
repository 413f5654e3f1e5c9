"""How isrwatch is deployed: a launcher for spark-submit, compose, Prometheus, Alertmanager and Grafana.

- ``sandbox``  a real Kafka cluster on this machine, for tests and for people
"""
