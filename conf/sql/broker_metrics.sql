-- Which metrics of a broker are more than twice the mean of its cluster?
WITH means AS (
    SELECT m.cluster_id, m.metric, avg(m.metric_value) AS mean_value
    FROM broker_metrics m
    GROUP BY m.cluster_id, m.metric
)
SELECT b.cluster_id, b.metric, b.broker, b.metric_value, a.mean_value
FROM broker_metrics b
JOIN means a ON a.cluster_id = b.cluster_id AND a.metric = b.metric
WHERE b.metric_value > 2 * a.mean_value
ORDER BY b.cluster_id, b.metric, b.broker
