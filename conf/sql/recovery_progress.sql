-- Which brokers have replicas that are not in sync, how far behind are they, and how long will they take?
-- Unknown while one of them has no sample, as those of a broker that is down, or its lag does not shrink.
SELECT b.cluster_id, b.broker, b.is_fenced, count(*) AS replicas_to_rejoin,
       CASE WHEN count(r.lag) = count(*) THEN sum(r.lag) END AS rejoin_lag,
       CASE WHEN count(r.lag_per_second) = count(*) AND sum(r.lag_per_second) < 0
            THEN sum(r.lag) / -sum(r.lag_per_second) END AS rejoin_seconds
FROM broker_state b
JOIN partition_state p ON p.cluster_id = b.cluster_id AND NOT p.is_deleted
     AND array_contains(p.replicas, b.broker) AND NOT array_contains(p.isr, b.broker)
LEFT JOIN replica_offsets r ON r.cluster_id = p.cluster_id AND r.topic_id = p.topic_id
     AND r.partition = p.partition AND r.broker = b.broker
GROUP BY b.cluster_id, b.broker, b.is_fenced
ORDER BY rejoin_seconds DESC NULLS FIRST, replicas_to_rejoin DESC, b.cluster_id, b.broker
