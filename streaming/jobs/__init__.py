"""One file a streaming query: input, transforms, output, checkpoint. No rule inside.

- ``session``     the Spark session with the configuration that was measured
- ``bus_source``  the bus as a Spark source: the one place where bus and Spark meet
"""
