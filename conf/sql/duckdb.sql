-- What the other files need of DuckDB, once a connection (Spark has the function).
SET TimeZone = 'UTC';
CREATE OR REPLACE MACRO unix_micros(moment) AS epoch_us(moment);
