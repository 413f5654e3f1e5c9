"""Places of tables, and the six verbs by which objects are read and written there."""
