"""The fold of whole Kafka clusters, in the driver or on Spark's executors."""
