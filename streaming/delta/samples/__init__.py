"""Tables of samples: the newest row of each key, and ISR changes that brokers counted, compared with those recorded."""
