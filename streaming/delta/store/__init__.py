"""Where the tables lie: places, and the six verbs by which objects are read and written there."""
