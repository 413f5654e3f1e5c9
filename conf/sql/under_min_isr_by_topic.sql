-- How long did each topic reject writes with acks=all in the week before the newest change?
-- Seconds, summed over its partitions; an episode that is still open counts up to the newest change, without the time
-- that was not observed (unobserved_micros).
WITH newest_change AS (
    SELECT c.cluster_id, max(c.occurred_not_after) AS until
    FROM partition_changes c
    GROUP BY c.cluster_id
),
steps AS (
    SELECT c.cluster_id, c.topic_id, c.topic, c.partition, n.until,
           c.after.under_min_isr_seconds - coalesce(c.before.under_min_isr_seconds, 0) AS closed_seconds,
           c.after.under_min_isr_since AS open_since,
           coalesce(k.unobserved_micros, 0) - coalesce(c.after.unobserved_micros, 0) AS unobserved,
           row_number() OVER (
               PARTITION BY c.cluster_id, c.topic_id, c.partition ORDER BY c.after.change_number DESC
           ) AS age
    FROM partition_changes c
    JOIN newest_change n ON n.cluster_id = c.cluster_id
    JOIN cluster_state k ON k.cluster_id = c.cluster_id
    WHERE c.subject = 'partition' AND c.occurred_not_after >= n.until - INTERVAL '7' DAY
)
SELECT s.cluster_id, s.topic,
       sum(s.closed_seconds) + sum(
           CASE WHEN s.age = 1 AND s.open_since IS NOT NULL
                THEN (unix_micros(s.until) - unix_micros(s.open_since) - s.unobserved) / 1000000.0 ELSE 0 END
       ) AS under_min_isr_seconds
FROM steps s
GROUP BY s.cluster_id, s.topic
ORDER BY under_min_isr_seconds DESC, s.cluster_id, s.topic
