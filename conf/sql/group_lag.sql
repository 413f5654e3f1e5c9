-- Which groups lose records, stand beyond the end or stand still, and which have lag that no member reads? Worst first.
-- A position without an owner is not read any more, or by a consumer without membership, whose commits still move.
SELECT g.cluster_id, g.group, g.topic, sum(g.records_lost) AS records_lost, max(g.lost_at) AS lost_at,
       sum(g.beyond) AS beyond, sum(g.lag) AS lag, min(g.standing_since) AS standing_since,
       max(g.committed_at) AS committed_at, count(g.member) AS owned_partitions, max(g.members) AS members,
       sum(g.lag) > 0 AND count(g.member) = 0 AS is_unattended
FROM group_offsets g
GROUP BY g.cluster_id, g.group, g.topic
ORDER BY lost_at DESC NULLS LAST, beyond DESC NULLS LAST, is_unattended DESC NULLS LAST, lag DESC NULLS LAST,
         g.cluster_id, g.group, g.topic
