"""How isrwatch is run: a launcher for Spark, compose, Kubernetes, Prometheus, Grafana, and a real Kafka to break."""
