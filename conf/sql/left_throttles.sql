-- Which throttles of replication were left behind: set, though nothing of the cluster is being reassigned?
WITH throttles AS (
    SELECT t.cluster_id, t.topic, NULL AS broker, t.leader_throttled_replicas AS leader,
           t.follower_throttled_replicas AS follower
    FROM topic_settings t
    WHERE t.leader_throttled_replicas NOT IN ('', 'none') OR t.follower_throttled_replicas NOT IN ('', 'none')
    UNION ALL
    SELECT b.cluster_id, NULL, b.broker, CAST(b.leader_throttled_rate AS STRING),
           CAST(b.follower_throttled_rate AS STRING)
    FROM broker_settings b
    WHERE b.leader_throttled_rate IS NOT NULL OR b.follower_throttled_rate IS NOT NULL
)
SELECT s.cluster_id, s.topic, s.broker, s.leader, s.follower
FROM throttles s
JOIN cluster_state c ON c.cluster_id = s.cluster_id
WHERE c.reassigning_partitions = 0
ORDER BY s.cluster_id, s.topic NULLS LAST, s.broker
