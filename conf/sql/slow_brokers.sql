-- Which brokers are slow, since when and why, and how do they compare with the others?
SELECT s.cluster_id, s.broker, s.is_slow, s.is_overloaded, s.slow_score, s.slow_since, s.slow_reasons,
       s.response_micros / 1000.0 AS response_ms, s.append_micros / 1000.0 AS append_ms, s.followed_leaders_behind, s.followed_leaders,
       s.followers_behind, s.followers, s.replicas_behind, s.replicas_out_of_isr
FROM broker_speed s
ORDER BY s.is_slow DESC NULLS LAST, s.slow_score DESC, s.response_micros DESC, s.cluster_id, s.broker
