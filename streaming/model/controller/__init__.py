"""The active controller: who leads, who is in sync, who is alive."""
