"""Work of the driver on each micro-batch: decode, fold, commit by delta-rs."""
