-- The settings of which topics risk records or availability, and how? Worst first.
-- Whether all replicas of a partition are in one rack is no setting: see isrwatch settings.
SELECT t.cluster_id, w.weakness, t.topic, t.replication_factor, t.min_isr, t.cleanup_policy, t.role
FROM topic_settings t
JOIN (
    VALUES (1, 'min_isr_above_replication_factor'), (2, 'one_replica'), (3, 'not_compacted'), (4, 'unclean_election'),
           (5, 'min_isr_one'), (6, 'no_replica_to_spare')
) AS w(rank, weakness) ON array_contains(t.weaknesses, w.weakness)
ORDER BY w.rank, t.cluster_id, t.topic
