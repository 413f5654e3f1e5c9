-- How far behind the leader of the metadata quorum is each voter and observer, in records and in seconds?
-- Both are as the leader saw it, by its own clock.
SELECT m.cluster_id, m.node, m.is_voter, m.node = m.controller AS is_leader,
       CASE WHEN m.log_end_offset > l.log_end_offset THEN 0 ELSE l.log_end_offset - m.log_end_offset END AS lag,
       (unix_micros(l.last_caught_up_at) - unix_micros(m.last_caught_up_at)) / 1000000.0 AS behind_seconds
FROM quorum_members m
LEFT JOIN quorum_members l ON l.cluster_id = m.cluster_id AND l.node = m.controller AND l.is_voter
ORDER BY m.cluster_id, m.is_voter DESC, lag DESC NULLS LAST, m.node
