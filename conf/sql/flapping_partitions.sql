-- Which partitions flap: shrink their ISR at least twice within an hour?
SELECT e.cluster_id, e.topic, e.partition, date_trunc('hour', e.occurred_not_after) AS hour,
       sum(CASE WHEN e.event = 'isr_shrink' THEN 1 ELSE 0 END) AS shrinks,
       sum(CASE WHEN e.event = 'isr_expand' THEN 1 ELSE 0 END) AS expands
FROM replication_events e
WHERE e.event IN ('isr_shrink', 'isr_expand')
GROUP BY e.cluster_id, e.topic, e.partition, date_trunc('hour', e.occurred_not_after)
HAVING sum(CASE WHEN e.event = 'isr_shrink' THEN 1 ELSE 0 END) >= 2
ORDER BY shrinks DESC, e.cluster_id, e.topic, e.partition, hour
