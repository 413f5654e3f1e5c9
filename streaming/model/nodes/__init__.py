"""The processes of a cluster: brokers, and the controllers of either metadata mode."""
