"""Commands that query the tables. No Spark and no Java."""
