-- Which replicas have not caught up with their leaders, since when, and how many records do they lack?
-- A follower that only lacks what came since the sample before counts as caught up, as it does for its leader.
SELECT r.cluster_id, r.topic, r.partition, r.broker, r.lag, r.behind_since,
       (unix_micros(r.collected_at) - unix_micros(r.behind_since)) / 1000000.0 AS behind_seconds
FROM replica_offsets r
WHERE r.behind_since < r.collected_at
ORDER BY behind_seconds DESC, r.lag DESC, r.cluster_id, r.topic, r.partition, r.broker
