-- Which log directories are offline, and which are the fullest?
SELECT d.cluster_id, d.broker, d.log_dir, d.is_online, d.hosted_replicas, d.replica_bytes, d.usable_bytes,
       100 * (1 - d.usable_bytes / CAST(d.total_bytes AS DOUBLE)) AS used_percent
FROM log_directories d
ORDER BY d.is_online, used_percent DESC NULLS LAST, d.cluster_id, d.broker, d.log_dir
