"""A broker process: its parts, the coordinators on top of them, and the requests it answers."""
