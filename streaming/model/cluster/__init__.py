"""The whole cluster: its event loop, what administrators ask of it, what they are shown, and common claims about it."""
