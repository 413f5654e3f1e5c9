"""Places of tables, and the six verbs that read and write objects there."""
