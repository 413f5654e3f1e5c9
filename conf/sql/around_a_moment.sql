-- What happened in the minute before and after a partition was under min ISR for the first time?
-- For another time replace the first query, for example with SELECT 'CLUSTER ID', TIMESTAMP '2026-03-01 10:30:00'.
WITH moment AS (
    SELECT w.cluster_id, min(w.occurred_not_after) AS at
    FROM replication_events w
    WHERE w.event = 'under_min_isr_began'
    GROUP BY w.cluster_id
)
SELECT e.occurred_not_after, e.cluster_id, e.subject, e.topic, e.partition, e.event, e.event_broker, e.left_isr,
       e.leader_before, e.leader_after, e.cause, e.event_id
FROM replication_events e
JOIN moment m ON m.cluster_id = e.cluster_id
WHERE e.occurred_not_after BETWEEN m.at - INTERVAL '1' MINUTE AND m.at + INTERVAL '1' MINUTE
ORDER BY e.occurred_not_after, e.event_id
