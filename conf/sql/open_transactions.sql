-- Which transactions hang, which are open for longer than their timeout, and which are the oldest?
SELECT t.cluster_id, t.transactional_id, t.producer_id, t.producer_epoch, t.coordinator, t.transaction_state,
       t.is_hanging,
       unix_micros(t.collected_at) - unix_micros(t.started_at) > 1000 * CAST(t.timeout_ms AS BIGINT) AS is_late,
       (unix_micros(t.collected_at) - unix_micros(t.started_at)) / 1000000.0 AS open_seconds,
       t.transaction_partitions
FROM transactions t
ORDER BY t.is_hanging DESC, is_late DESC NULLS LAST, open_seconds DESC NULLS LAST, t.cluster_id, t.producer_id
