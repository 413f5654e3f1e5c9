"""The collector: runs the sources of one or several clusters, and publishes what they observe to the bus."""
