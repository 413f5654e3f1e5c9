"""What must hold after every step, and the observer that checks it. The protocol does not know this package."""
