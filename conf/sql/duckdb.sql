-- What the other files require in DuckDB, once per connection (Spark has this function).
SET TimeZone = 'UTC';
CREATE OR REPLACE MACRO unix_micros(moment) AS epoch_us(moment);
