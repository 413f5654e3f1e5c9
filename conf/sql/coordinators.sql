-- How many groups does each broker coordinate, in which state, and how many members have they?
SELECT g.cluster_id, g.coordinator, g.group_protocol, g.group_state, count(*) AS group_count, sum(g.members) AS members
FROM groups g
GROUP BY g.cluster_id, g.coordinator, g.group_protocol, g.group_state
ORDER BY g.cluster_id, g.coordinator, g.group_protocol, g.group_state
