"""The active controller: which replicas lead, are in sync, are alive."""
