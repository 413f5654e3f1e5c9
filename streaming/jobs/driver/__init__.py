"""What the driver does with each micro-batch: decode, fold, commit by delta-rs."""
