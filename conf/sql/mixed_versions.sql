-- Which brokers support less of a feature than another broker of their cluster, as an older version of Kafka does?
WITH features AS (
    SELECT f.cluster_id, f.feature, max(f.supported_level) AS newest_level, max(f.finalized_level) AS finalized_level
    FROM broker_features f
    GROUP BY f.cluster_id, f.feature
),
brokers AS (
    SELECT DISTINCT f.cluster_id, f.broker
    FROM broker_features f
)
SELECT n.cluster_id, b.broker, n.feature, coalesce(f.supported_level, 0) AS supported_level, n.newest_level,
       n.finalized_level
FROM features n
JOIN brokers b ON b.cluster_id = n.cluster_id
LEFT JOIN broker_features f ON f.cluster_id = n.cluster_id AND f.broker = b.broker AND f.feature = n.feature
WHERE coalesce(f.supported_level, 0) < n.newest_level
ORDER BY n.cluster_id, b.broker, n.feature
