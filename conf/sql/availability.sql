-- For what part of the time that was seen could each topic be written to with acks=all, in percent?
-- Offline and under min ISR may overlap, so of the two the longer counts: it is what is certain.
WITH seen AS (
    SELECT c.cluster_id, c.topic_id, c.partition, min(c.occurred_not_after) AS first_at
    FROM partition_changes c
    WHERE c.subject = 'partition'
    GROUP BY c.cluster_id, c.topic_id, c.partition
),
known AS (
    SELECT c.cluster_id, max(c.occurred_not_after) AS until
    FROM partition_changes c
    GROUP BY c.cluster_id
),
spent AS (
    SELECT p.cluster_id, p.topic,
           (unix_micros(k.until) - unix_micros(s.first_at)) / 1000000.0 - p.unknown_seconds AS seen_seconds,
           greatest(
               p.offline_seconds + CASE WHEN p.offline_since IS NULL THEN 0
                   ELSE (unix_micros(k.until) - unix_micros(p.offline_since)) / 1000000.0 END,
               p.under_min_isr_seconds + CASE WHEN p.under_min_isr_since IS NULL THEN 0
                   ELSE (unix_micros(k.until) - unix_micros(p.under_min_isr_since)) / 1000000.0 END
           ) AS refused_seconds
    FROM partition_state p
    JOIN seen s ON s.cluster_id = p.cluster_id AND s.topic_id = p.topic_id AND s.partition = p.partition
    JOIN known k ON k.cluster_id = p.cluster_id
    WHERE NOT p.is_deleted
)
SELECT t.cluster_id, t.topic, 100 * (1 - sum(t.refused_seconds) / sum(t.seen_seconds)) AS available_percent
FROM spent t
GROUP BY t.cluster_id, t.topic
HAVING sum(t.seen_seconds) > 0
ORDER BY available_percent, t.cluster_id, t.topic
