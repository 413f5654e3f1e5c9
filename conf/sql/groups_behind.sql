-- How far behind is each group, in offsets and in seconds? Unknown (null) if it is of one of its partitions.
-- Seconds are how long the first offset that it has not passed could have been read, in the partition where that is most.
SELECT o.cluster_id, o.group, count(*) AS partitions,
       CASE WHEN count(o.lag) = count(*) THEN sum(o.lag) END AS lag,
       CASE WHEN count(o.lag_seconds) = count(*) THEN max(o.lag_seconds) END AS lag_seconds,
       sum(o.records_lost) AS records_lost
FROM group_offsets o
GROUP BY o.cluster_id, o.group
ORDER BY lag_seconds DESC NULLS FIRST, o.cluster_id, o.group
