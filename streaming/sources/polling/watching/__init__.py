"""Questions carried out on connections to brokers, which are kept."""
