"""Images: the Dockerfiles rendered from one list, and real images built from Debian packages without a registry."""
