"""What the driver does with each micro-batch: decode, fold, commit by delta-rs.

- ``decoded_batch``   rows of the bus as observations in order, and the refused records
- ``repeated_blocks``    blocks of a full report that repeat the state, recognised by their digest
- ``batch``           the replication query: decode, fold, commit
- ``projecting``      the thread that writes the derived tables behind the batches
- ``samples``         payloads of samples as Arrow columns
- ``sample_sources``  progress of the sources of a sample channel
- ``newest``          the queries of samples: offsets, broker metrics
- ``incidents``       the incidents query: changes in, incidents out
"""
