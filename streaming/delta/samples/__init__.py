"""Tables of samples: the newest row of each key, and the reconciliation of counted and recorded ISR changes."""
