-- Which groups lose records, and which have lag that no member reads? Worst first, then by lag.
SELECT g.cluster_id, g.group, g.topic, sum(g.records_lost) AS records_lost, sum(g.lag) AS lag,
       max(g.members) AS members, sum(g.lag) > 0 AND max(g.members) = 0 AS is_unattended
FROM group_offsets g
GROUP BY g.cluster_id, g.group, g.topic
ORDER BY records_lost DESC NULLS LAST, is_unattended DESC NULLS LAST, lag DESC NULLS LAST, g.cluster_id, g.group, g.topic
