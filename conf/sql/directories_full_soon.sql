-- When will each log directory be full, at the pace of the last 20 minutes? The next one first.
-- Without an end where its volume does not fill; unknown where the broker does not report its bytes (before Kafka 3.3).
SELECT d.cluster_id, d.broker, d.log_dir, d.usable_bytes, d.bytes_per_second, d.seconds_until_full
FROM log_directories d
WHERE d.is_online
ORDER BY d.seconds_until_full NULLS LAST, d.cluster_id, d.broker, d.log_dir
