"""HTTP as every program of isrwatch serves it: the exporter, the collector and the job."""
