"""Tools for an assistant, over the Model Context Protocol: they read, and change nothing."""
