-- What was the state of every partition half a minute before the newest change? For another time replace the first query.
WITH moment AS (
    SELECT max(w.occurred_not_after) - INTERVAL '30' SECOND AS at FROM partition_changes w
),
changes AS (
    SELECT c.cluster_id, c.topic, c.partition, c.after.leader AS leader, c.after.isr AS isr,
           c.after.is_under_min_isr AS is_under_min_isr, c.after.is_deleted AS is_deleted,
           row_number() OVER (
               PARTITION BY c.cluster_id, c.topic_id, c.partition ORDER BY c.after.change_number DESC
           ) AS age
    FROM partition_changes c
    CROSS JOIN moment m
    WHERE c.subject = 'partition' AND c.occurred_not_after <= m.at
)
SELECT k.cluster_id, k.topic, k.partition, k.leader, k.isr, k.is_under_min_isr
FROM changes k
WHERE k.age = 1 AND NOT k.is_deleted
ORDER BY k.cluster_id, k.topic, k.partition
