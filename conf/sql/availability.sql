-- For what share of the observed time did each topic accept writes with acks=all, in percent?
-- Offline and under min ISR can overlap, so the longer of the two counts: the certain lower bound of the outage.
WITH first_change AS (
    SELECT c.cluster_id, c.topic_id, c.partition, min(c.occurred_not_after) AS first_at
    FROM partition_changes c
    WHERE c.subject = 'partition'
    GROUP BY c.cluster_id, c.topic_id, c.partition
),
newest_change AS (
    SELECT c.cluster_id, max(c.occurred_not_after) AS until
    FROM partition_changes c
    GROUP BY c.cluster_id
),
live AS (
    -- Time without observation since the last change of a partition is unknown, too, and of none of its open episodes.
    SELECT p.*, coalesce(k.unobserved_micros, 0) - coalesce(p.unobserved_micros, 0) AS unobserved
    FROM partition_state p
    JOIN cluster_state k ON k.cluster_id = p.cluster_id
    WHERE NOT p.is_deleted
),
durations AS (
    SELECT p.cluster_id, p.topic,
           (unix_micros(n.until) - unix_micros(s.first_at) - p.unobserved) / 1000000.0 - p.unknown_seconds
               AS observed_seconds,
           greatest(
               p.offline_seconds + CASE WHEN p.offline_since IS NULL THEN 0
                   ELSE (unix_micros(n.until) - unix_micros(p.offline_since) - p.unobserved) / 1000000.0 END,
               p.under_min_isr_seconds + CASE WHEN p.under_min_isr_since IS NULL THEN 0
                   ELSE (unix_micros(n.until) - unix_micros(p.under_min_isr_since) - p.unobserved) / 1000000.0 END
           ) AS rejected_seconds
    FROM live p
    JOIN first_change s ON s.cluster_id = p.cluster_id AND s.topic_id = p.topic_id AND s.partition = p.partition
    JOIN newest_change n ON n.cluster_id = p.cluster_id
)
SELECT t.cluster_id, t.topic, 100 * (1 - sum(t.rejected_seconds) / sum(t.observed_seconds)) AS available_percent
FROM durations t
GROUP BY t.cluster_id, t.topic
HAVING sum(t.observed_seconds) > 0
ORDER BY available_percent, t.cluster_id, t.topic
