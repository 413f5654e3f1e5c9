"""Invariants that hold after every step, and the observer that checks them. The protocol does not know this package."""
