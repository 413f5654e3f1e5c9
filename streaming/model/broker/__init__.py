"""The parts of a broker: as leader, as follower, and its life cycle."""
