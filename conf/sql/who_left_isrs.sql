-- Which brokers left ISRs most often, and why?
SELECT e.cluster_id, b.broker, e.cause, e.evidence, count(*) AS departures
FROM replication_events e
JOIN broker_state b ON b.cluster_id = e.cluster_id AND array_contains(e.left_isr, b.broker)
WHERE e.event = 'isr_shrink'
GROUP BY e.cluster_id, b.broker, e.cause, e.evidence
ORDER BY departures DESC, e.cluster_id, b.broker, e.cause
