-- How many ISR changes did each broker count as leader that polling has missed, and in which time?
SELECT i.cluster_id, i.broker, i.meter, i.missed, i.counted, i.recorded, i.since, i.until
FROM isr_reconciliation i
ORDER BY i.missed DESC, i.cluster_id, i.broker, i.meter
