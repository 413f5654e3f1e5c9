"""One broker process: as leader, as follower, and its life cycle."""
