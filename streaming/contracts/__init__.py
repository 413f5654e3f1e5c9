"""Shared definitions. Standard library only, so that every package and every installation has them."""
