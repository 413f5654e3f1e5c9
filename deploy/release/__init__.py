"""Files of a release: wheels, source distribution, lists of what is inside, and checksums."""
