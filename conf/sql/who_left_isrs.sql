-- Which brokers were removed from ISRs most often, and why?
SELECT e.cluster_id, b.broker, e.cause, e.evidence, count(*) AS isr_removals
FROM replication_events e
JOIN broker_state b ON b.cluster_id = e.cluster_id AND array_contains(e.left_isr, b.broker)
WHERE e.event = 'isr_shrink'
GROUP BY e.cluster_id, b.broker, e.cause, e.evidence
ORDER BY isr_removals DESC, e.cluster_id, b.broker, e.cause
